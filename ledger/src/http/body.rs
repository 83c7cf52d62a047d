//! Reading request bodies from peers that may be slow, large or gone.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt;
use schemas::attachment::ATTACHMENT_BYTES_MAX;
use schemas::statement::STATEMENT_BYTES_MAX;
use tokio::time::{Instant, timeout};

use crate::http::app::Limits;
use crate::http::problem::Problem;

/// A request body that is read piece by piece, within limits.
pub struct LimitedBody {
    body: Body,
    bytes_max: u64,
    bytes_read: u64,
    announced: Option<u64>,
    pause: Duration,
    pace: Pace,
}

/// When a body must have come.
#[derive(Debug, Clone, Copy)]
struct Pace {
    started: Instant,
    timeout: Duration,
    /// Grace, and the least rate in bytes a second after it.
    rate: Option<(Duration, u64)>,
}

impl Pace {
    /// When more than `bytes_read` bytes must be there.
    fn deadline(&self, bytes_read: u64) -> Instant {
        let slowest = self.rate.map_or(Duration::MAX, |(grace, bytes_per_s)| {
            grace.saturating_add(Duration::from_millis(bytes_read.saturating_mul(1000) / bytes_per_s.max(1)))
        });
        self.started + self.timeout.min(slowest)
    }
}

impl LimitedBody {
    /// The body of a statement.
    pub fn entry(body: Body, headers: &HeaderMap, limits: &Limits) -> Result<LimitedBody, Problem> {
        LimitedBody::short(body, headers, STATEMENT_BYTES_MAX, limits)
    }

    /// The body of another short request.
    pub fn short(
        body: Body,
        headers: &HeaderMap,
        bytes_max: usize,
        limits: &Limits,
    ) -> Result<LimitedBody, Problem> {
        let timeout = Duration::from_millis(limits.entry_timeout_ms);
        let pace = Pace { started: Instant::now(), timeout, rate: None };
        LimitedBody::new(body, headers, bytes_max as u64, pace, limits)
    }

    /// The body of an attachment.
    pub fn upload(body: Body, headers: &HeaderMap, limits: &Limits) -> Result<LimitedBody, Problem> {
        let grace = Duration::from_millis(limits.upload_grace_ms);
        let rate = Some((grace, limits.upload_rate_min_bytes_per_s));
        let timeout = Duration::from_millis(limits.upload_timeout_ms);
        let pace = Pace { started: Instant::now(), timeout, rate };
        LimitedBody::new(body, headers, ATTACHMENT_BYTES_MAX, pace, limits)
    }

    /// Refuses a body that announces more than `bytes_max` bytes before any of it is read.
    fn new(
        body: Body,
        headers: &HeaderMap,
        bytes_max: u64,
        pace: Pace,
        limits: &Limits,
    ) -> Result<LimitedBody, Problem> {
        let announced: Option<u64> =
            headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        if announced.is_some_and(|announced| announced > bytes_max) {
            return Err(too_large(bytes_max));
        }
        let pause = Duration::from_millis(limits.body_pause_ms);
        Ok(LimitedBody { body, bytes_max, bytes_read: 0, announced, pause, pace })
    }

    /// How long it will be, as far as that is known.
    pub fn announced(&self) -> u64 {
        self.announced.unwrap_or(0)
    }

    /// The next piece; none at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        loop {
            // What has come already is taken even after the deadline: then it was this server that was slow.
            let deadline = self.pace.deadline(self.bytes_read);
            let patience = self.pause.min(deadline.saturating_duration_since(Instant::now()));
            let frame = match timeout(patience, self.body.frame()).await {
                Err(_) => {
                    return Err(Problem::new(
                        StatusCode::REQUEST_TIMEOUT,
                        "timeout",
                        "the body came too slowly",
                    ));
                }
                Ok(None) => return Ok(None),
                Ok(Some(Err(_))) => {
                    return Err(Problem::bad_request("the body ended before its announced length"));
                }
                Ok(Some(Ok(frame))) => frame,
            };
            let Ok(piece) = frame.into_data() else { continue };
            self.bytes_read += piece.len() as u64;
            if self.bytes_read > self.bytes_max {
                return Err(too_large(self.bytes_max));
            }
            return Ok(Some(piece));
        }
    }

    /// The whole body.
    pub async fn all(mut self) -> Result<Vec<u8>, Problem> {
        let mut bytes = Vec::new();
        while let Some(piece) = self.next().await? {
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }
}

fn too_large(bytes_max: u64) -> Problem {
    let detail = format!("expected at most {bytes_max} bytes ({} KiB)", bytes_max >> 10);
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too large", detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attachment_must_keep_its_rate_after_the_grace_and_end_in_time() {
        let started = Instant::now();
        let seconds = Duration::from_secs;
        let pace = Pace { started, timeout: seconds(600), rate: Some((seconds(30), 16_384)) };
        assert_eq!(pace.deadline(0), started + seconds(30));
        assert_eq!(pace.deadline(16_384 * 5), started + seconds(35));
        assert_eq!(pace.deadline(u64::MAX), started + seconds(600));
        assert_eq!(Pace { rate: None, ..pace }.deadline(0), started + seconds(600));
    }
}
