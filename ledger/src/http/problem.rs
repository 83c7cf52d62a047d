//! Errors as they are answered, with title, detail and status, never cached: `application/problem+json` (RFC 9457), or,
//! to whoever asks for CBOR, `application/concise-problem-details+cbor` (RFC 9290).

use std::io::ErrorKind;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemas::cbor::{self, Value};
use serde_json::json;

use crate::error::LogError;
use crate::http::accept::PROBLEM_CBOR;
use crate::order::admission::Refusal;
use crate::order::sequencer::SubmitError;

/// How long a client is asked to wait when the server is busy.
const RETRY_AFTER_S: u64 = 1;

/// An error answer.
#[derive(Debug, Clone)]
pub struct Problem {
    /// HTTP status.
    pub status: StatusCode,
    /// What kind of problem it is, the same for all of its kind.
    pub title: &'static str,
    /// What is wrong with this request: expected and found.
    pub detail: String,
    /// Whether to ask again, and when.
    pub retry_after_s: Option<u64>,
}

impl Problem {
    /// A problem that asking again does not solve.
    pub fn new(status: StatusCode, title: &'static str, detail: impl Into<String>) -> Problem {
        Problem { status, title, detail: detail.into(), retry_after_s: None }
    }

    /// Nothing is there.
    pub fn not_found(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, "not found", detail)
    }

    /// The request is malformed.
    pub fn bad_request(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, "bad request", detail)
    }

    /// Somebody asks for more than they may; after `wait` it will do.
    pub fn too_many(limit: String, wait: std::time::Duration) -> Problem {
        // Rounded up: whoever waits as told is not refused again for coming a moment early.
        let seconds = wait.as_millis().div_ceil(1000).max(1) as u64;
        let detail = format!("{limit}; ask again in {seconds} s");
        let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "too many requests", detail);
        Problem { retry_after_s: Some(seconds), ..problem }
    }

    /// The server cannot take it just now.
    pub fn busy(detail: impl Into<String>) -> Problem {
        let retry_after_s = Some(RETRY_AFTER_S);
        Problem {
            status: StatusCode::SERVICE_UNAVAILABLE,
            title: "busy",
            detail: detail.into(),
            retry_after_s,
        }
    }
}

impl From<LogError> for Problem {
    fn from(error: LogError) -> Problem {
        // What went wrong inside is for the operator; the client learns only that it was not its fault.
        tracing::error!("{error}");
        if let LogError::Io { source, .. } = &error
            && matches!(
                source.kind(),
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge
            )
        {
            let detail = "the log's disk is full; this has been reported to its operator";
            return Problem::new(StatusCode::INSUFFICIENT_STORAGE, "no room", detail);
        }
        let detail = match &error {
            LogError::ProofMismatch { .. } => {
                format!("{error}; this has been reported to the log's operator")
            }
            _ => "the log could not be read; this has been reported to its operator".to_owned(),
        };
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error", detail)
    }
}

impl From<SubmitError> for Problem {
    fn from(error: SubmitError) -> Problem {
        match error {
            SubmitError::PoolFull => Problem::busy("too many submissions are waiting; submit again"),
            SubmitError::Refused(refusal) => refusal.into(),
            SubmitError::NotStored(error) => {
                let why = match error.as_deref() {
                    Some(LogError::Io { source, .. }) => format!(": {}", source.kind()),
                    _ => String::new(),
                };
                Problem::busy(format!("the entry could not be stored{why}; submit it again"))
            }
            SubmitError::Stopping => Problem::busy(
                "the server is stopping; submit again, an entry that is in the log is not added twice",
            ),
        }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Problem {
        let detail = refusal.to_string();
        match refusal {
            Refusal::NotAStatement(_) => Problem::new(StatusCode::BAD_REQUEST, "not a statement", detail),
            Refusal::Register => Problem::new(StatusCode::FORBIDDEN, "not yours to sign", detail),
            Refusal::UnknownRun { .. } => Problem::new(StatusCode::CONFLICT, "unknown run", detail),
            Refusal::AlreadyPredicted { .. } => {
                Problem::new(StatusCode::CONFLICT, "already predicted", detail)
            }
            Refusal::AlreadyOpened { .. } => Problem::new(StatusCode::CONFLICT, "already opened", detail),
        }
    }
}

impl Problem {
    /// The answer for whoever asks for CBOR.
    pub fn into_cbor(self) -> Response {
        // Keys of RFC 9290: -1 title, -2 detail, -4 response code.
        let body = cbor::encode(&Value::Map(vec![
            (Value::Nint(0), Value::text(self.title)),
            (Value::Nint(1), Value::text(self.detail.as_str())),
            (Value::Nint(3), Value::Uint(self.status.as_u16().into())),
        ]));
        self.answer(PROBLEM_CBOR, body)
    }

    /// The answer in one form. The problem itself goes along: it may still be told in the other, and is counted.
    fn answer(self, content_type: &'static str, body: Vec<u8>) -> Response {
        let headers = [(header::CONTENT_TYPE, content_type), (header::CACHE_CONTROL, "no-store")];
        let mut response = (self.status, headers, body).into_response();
        if let Some(seconds) = self.retry_after_s {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response.extensions_mut().insert(self);
        response
    }
}

impl IntoResponse for Problem {
    /// As JSON, unless somebody who knows that CBOR is asked for makes it that.
    fn into_response(self) -> Response {
        let body = json!({ "title": self.title, "detail": self.detail, "status": self.status.as_u16() });
        self.answer(PROBLEM_JSON, format!("{body}\n").into_bytes())
    }
}

/// Content type of error answers.
pub const PROBLEM_JSON: &str = "application/problem+json";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_no_room_and_another_error_of_it_is_not() {
        let of = |kind: ErrorKind| Problem::from(LogError::io("attachments/incoming/1")(kind.into())).status;
        for kind in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded, ErrorKind::FileTooLarge] {
            assert_eq!(of(kind), StatusCode::INSUFFICIENT_STORAGE);
        }
        assert_eq!(of(ErrorKind::PermissionDenied), StatusCode::INTERNAL_SERVER_ERROR);
    }
}
