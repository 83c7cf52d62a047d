//! A server whose folder or lock is moved or replaced while it runs publishes nothing more, and says why it stops.

mod support;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use support::{Folder, Process, copy_folder, folder, get, request, run_statement, served, submit};

/// What a server says at its end, which has to come by itself.
fn last_words(mut server: Process) -> String {
    let mut said = String::new();
    server.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(server.child.wait().unwrap().code(), Some(2), "{said}");
    said
}

/// Every file of a folder with its content.
fn content(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for item in std::fs::read_dir(next).unwrap() {
            let path = item.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.push((path.clone(), std::fs::read(path).unwrap())),
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_server_whose_folder_or_lock_was_moved_or_replaced_publishes_nothing_more_and_says_so() {
    let places: [fn(&Folder) -> PathBuf; 2] = [|folder| folder.path().to_owned(), Folder::lock];
    for (place, replaced) in places.into_iter().flat_map(|place| [(place, false), (place, true)]) {
        let folder = folder();
        let server = served(folder.path());
        assert_eq!(submit(server.address(), &run_statement(0)).status, 201);
        server.stop().unwrap();
        let server = Process::start_with(folder.path(), Stdio::piped());
        let address = server.address;
        assert_eq!(submit(address, &run_statement(1)).status, 201);
        let place = place(&folder);
        let aside = place.with_file_name("aside");
        std::fs::rename(&place, &aside).unwrap();
        if replaced {
            copy_folder(&aside, &place);
        }
        let before = if replaced { content(&place) } else { Vec::new() };
        let promised = std::fs::read(folder.lock().join("head")).ok();
        // Where the server has stopped on its own meanwhile, nobody answers.
        let headers = "Content-Type: application/cose\r\n";
        if let Ok(answer) = request(address, "POST", "/entries", headers, &run_statement(2)) {
            assert_eq!(answer.status, 503, "{}", answer.text());
        }
        let said = last_words(server);
        let expected = format!(
            "ledger: error: {} is not the folder that this server opened: it was moved or replaced\nledger: hint: put \
             it back where it was, or start again with --data and --lock where they are now; nothing was signed \
             since\n",
            place.display()
        );
        assert!(said.ends_with(&expected), "{said}");
        assert_eq!(std::fs::read(folder.lock().join("head")).ok(), promised);
        match replaced {
            true => assert!(content(&place) == before, "{} was written to", place.display()),
            false => assert!(!place.exists(), "{} was made again", place.display()),
        }
        // Put back, it goes on: what was acknowledged is there, and nothing else.
        if replaced {
            std::fs::remove_dir_all(&place).unwrap();
        }
        std::fs::rename(&aside, &place).unwrap();
        let server = served(folder.path());
        assert_eq!(get(server.address(), "/checkpoint").text().lines().nth(1), Some("3"));
        assert_eq!(submit(server.address(), &run_statement(1)).status, 200);
        server.stop().unwrap();
    }
}

#[test]
fn a_server_that_nobody_asks_anything_notices_too() {
    let folder = folder();
    let server = Process::start_with(folder.path(), Stdio::piped());
    let aside = folder.path().with_file_name("aside");
    std::fs::rename(folder.path(), &aside).unwrap();
    let said = last_words(server);
    assert!(said.contains("it was moved or replaced"), "{said}");
    assert!(!folder.path().exists());
}
