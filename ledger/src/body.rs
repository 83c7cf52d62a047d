//! Reading request bodies from peers that may be slow, large or gone.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout};

use crate::app::Limits;
use crate::problem::Problem;

/// A request body that is read piece by piece, within limits.
pub struct LimitedBody {
    body: Body,
    bytes_max: u64,
    bytes_read: u64,
    pause: Duration,
    deadline: Instant,
}

impl LimitedBody {
    /// Refuses a body that announces more than `bytes_max` bytes before any of it is read.
    pub fn new(
        body: Body,
        headers: &HeaderMap,
        bytes_max: u64,
        limits: &Limits,
    ) -> Result<LimitedBody, Problem> {
        let announced =
            headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        if announced.is_some_and(|announced: u64| announced > bytes_max) {
            return Err(too_large(bytes_max));
        }
        let pause = Duration::from_millis(limits.body_pause_ms);
        let deadline = Instant::now() + Duration::from_millis(limits.body_timeout_ms);
        Ok(LimitedBody { body, bytes_max, bytes_read: 0, pause, deadline })
    }

    /// The next piece; none at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        loop {
            let patience = self.pause.min(self.deadline.saturating_duration_since(Instant::now()));
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
