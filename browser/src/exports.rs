//! What a page calls. WebAssembly passes numbers only, so bytes go through this module's memory: the page asks for
//! room, writes policy and bundle into it one after the other, has them checked, and reads the answer.
//!
//! `unsafe` because a function that is found by its name must have that name to itself, which no compiler can see; the
//! prefix `tally_` is ours. Nothing here reads or writes through a pointer: the room is a vector of this side, and
//! pointers only go out. (The test does, in the page's place.)
#![allow(unsafe_code, reason = "names of exported functions")]

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Policy and bundle, one after the other.
static INPUT: Mutex<Vec<u8>> = Mutex::new(Vec::new());
/// The last answer.
static OUTPUT: Mutex<Vec<u8>> = Mutex::new(Vec::new());

fn lock(bytes: &'static Mutex<Vec<u8>>) -> MutexGuard<'static, Vec<u8>> {
    bytes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Room for `bytes` bytes of policy and bundle together; null if there is not so much. The room of the call before is
/// given up, and with it what was written there.
#[unsafe(no_mangle)]
pub extern "C" fn tally_input(bytes: usize) -> *mut u8 {
    let mut input = lock(&INPUT);
    *input = Vec::new();
    if input.try_reserve_exact(bytes).is_err() {
        return std::ptr::null_mut();
    }
    input.resize(bytes, 0);
    input.as_mut_ptr()
}

/// Checks what stands in the room: `policy_bytes` bytes of policy, the bundle after them. Returns the status and keeps
/// the answer until the next call.
#[unsafe(no_mangle)]
pub extern "C" fn tally_check(policy_bytes: usize) -> u32 {
    let input = lock(&INPUT);
    let (policy, bundle) = input.split_at(policy_bytes.min(input.len()));
    let answer = crate::check(policy, bundle);
    *lock(&OUTPUT) = answer.json.into_bytes();
    answer.status.into()
}

/// Where the answer is: JSON, UTF-8.
#[unsafe(no_mangle)]
pub extern "C" fn tally_output() -> *const u8 {
    lock(&OUTPUT).as_ptr()
}

/// How many bytes the answer has.
#[unsafe(no_mangle)]
pub extern "C" fn tally_output_bytes() -> usize {
    lock(&OUTPUT).len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_writes_into_the_room_and_reads_the_answer() {
        let ask = |policy: &[u8], bundle: &[u8]| {
            let bytes = [policy, bundle].concat();
            let room = tally_input(bytes.len());
            // SAFETY: the room is of this size until the next call, and nobody else holds it: this is the only test.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), room, bytes.len()) };
            let status = tally_check(policy.len());
            // SAFETY: the answer stays where it is until the next check.
            let answer = unsafe { std::slice::from_raw_parts(tally_output(), tally_output_bytes()) };
            (status, String::from_utf8(answer.to_vec()).unwrap())
        };
        let log = "log.example/test+fae20353+AYqI4910CfGV/VLbLTy6XXLKZwm/HZQSG/N0iAG0D29c";
        let key = "ed25519:66be7e332c7a453332bd9d0a7f7db055f5c5ef1a06ada66d98b39fb6810c473a";
        let policy = serde_json::json!({ "log_key": log, "predictor_keys": [key] }).to_string();
        let (status, json) = ask(policy.as_bytes(), b"no bundle");
        assert_eq!(status, 2);
        assert!(json.contains("\"summary\":\"not verified: check 1: bundle: "), "{json}");
        let (status, json) = ask(b"", b"no bundle");
        let error = "policy: EOF while parsing a value at line 1 column 0";
        let expected = serde_json::json!({ "verified": false, "status": 2, "error": error });
        assert_eq!((status, json), (2, expected.to_string()));
        // More than there is memory, and a policy that ends behind the room.
        assert!(tally_input(usize::MAX).is_null());
        assert_eq!(tally_check(7), 2);
    }
}
