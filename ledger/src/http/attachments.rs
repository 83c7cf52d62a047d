//! Attachments: bytes named by their SHA-256, checked while they arrive, kept beside the log.
//!
//! `attachments/<two digits>/<sha256>`; what is still arriving lies in `attachments/incoming/`.

use std::io::Read as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemas::digest::AttachmentDigest;
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;
use tokio_util::io::ReaderStream;

use crate::disk::durable::{ensure_folder, sync_folder};
use crate::disk::store::Store;
use crate::error::LogError;
use crate::http::app::App;
use crate::http::body::LimitedBody;
use crate::http::problem::Problem;
use crate::http::read::{IMMUTABLE, bad_name, blocking};

/// Tells arriving attachments apart.
static ARRIVING: AtomicU64 = AtomicU64::new(0);

/// Where an attachment lies.
pub fn path_of(store: &Store, digest: AttachmentDigest) -> PathBuf {
    let name = digest.to_string();
    store.path(&format!("attachments/{}/{name}", &name[..2]))
}

/// Throws away what was arriving when the server last stopped.
pub fn clear_incoming(store: &Store) -> Result<(), LogError> {
    let folder = store.path("attachments/incoming");
    match std::fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(LogError::Io { path: folder, source: error })
        }
        _ => ensure_folder(&folder).map_err(LogError::io(folder)),
    }
}

/// Hashes every stored attachment: how many there are, and what is wrong with each that is not what its name says.
pub fn check_attachments(store: &Store) -> Result<(u64, Vec<LogError>), LogError> {
    let (mut count, mut wrong) = (0, Vec::new());
    for folder in files_in(&store.path("attachments"))?.into_iter().filter(|path| path.is_dir()) {
        for path in files_in(&folder)? {
            let name = path.file_name().and_then(|name| name.to_str()?.parse::<AttachmentDigest>().ok());
            // Anything else, such as what was arriving when the server stopped, is not served and so no attachment.
            let Some(expected) = name.filter(|digest| path_of(store, *digest) == path) else { continue };
            count += 1;
            match hash_file(&path)? {
                found if found == expected => {}
                found => wrong.push(LogError::AttachmentMismatch { path, found }),
            }
        }
    }
    Ok((count, wrong))
}

/// What lies in a folder, in order; nothing if there is no such folder.
fn files_in(folder: &std::path::Path) -> Result<Vec<PathBuf>, LogError> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(LogError::io(folder))?,
    };
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>();
    let mut paths = paths.map_err(LogError::io(folder))?;
    paths.sort_unstable();
    Ok(paths)
}

fn hash_file(path: &std::path::Path) -> Result<AttachmentDigest, LogError> {
    let mut file = std::fs::File::open(path).map_err(LogError::io(path))?;
    let mut sha = Sha256::new();
    let mut piece = vec![0; 1 << 16];
    loop {
        match file.read(&mut piece).map_err(LogError::io(path))? {
            0 => return Ok(AttachmentDigest(sha.finalize().into())),
            length => sha.update(&piece[..length]),
        }
    }
}

/// GET /attachments/{sha256}
pub async fn download(State(app): State<App>, Path(name): Path<String>) -> Result<Response, Problem> {
    let digest = digest_of(&name)?;
    let path = path_of(&app.log.store, digest);
    let opened = tokio::fs::File::open(&path).await;
    let file = match opened {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Problem::not_found(format!("attachment {digest} is not on this server")));
        }
        other => other.map_err(LogError::io(&path))?,
    };
    let length = file.metadata().await.map_err(LogError::io(&path))?.len();
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, length.to_string()),
        (header::CACHE_CONTROL, IMMUTABLE.to_owned()),
    ];
    Ok((headers, Body::from_stream(ReaderStream::new(file))).into_response())
}

/// PUT or POST /attachments/{sha256}
///
/// Answers 201 for a new attachment and 200 for one that was there, once it is durable.
pub async fn upload(
    State(app): State<App>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let digest = digest_of(&name)?;
    let Ok(_permit) = app.uploads.try_acquire() else {
        return Err(Problem::busy("too many attachments are being uploaded; upload again"));
    };
    let body = LimitedBody::upload(body, &headers, &app.limits)?;
    let store = app.log.store.clone();
    let number = ARRIVING.fetch_add(1, Ordering::Relaxed);
    let room = Room { space: app.space.clone(), bytes: 0, again: length_of(&path_of(&store, digest)) };
    let mut arriving = Arriving { path: store.path(&format!("attachments/incoming/{number}")), room };
    arriving.room.take(body.announced())?;
    let (found, bytes) = receive(&mut arriving, body).await?;
    if found != digest {
        let detail = format!("the body's SHA-256 is {found}, expected {digest}");
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "digest mismatch", detail));
    }
    let new = blocking(move || Ok(keep(&store, digest, arriving)?)).await?;
    let status = if new { StatusCode::CREATED } else { StatusCode::OK };
    let headers = [
        (header::CONTENT_TYPE, "application/json".to_owned()),
        (header::CACHE_CONTROL, "no-store".to_owned()),
        (header::LOCATION, format!("/attachments/{digest}")),
    ];
    let body = json!({ "sha256": digest.to_string(), "bytes": bytes });
    Ok((status, headers, format!("{body}\n")).into_response())
}

/// How much room attachments take, those that are arriving included.
pub struct Space {
    bytes_max: u64,
    taken: AtomicU64,
    /// Held while an attachment takes its place, so that what lay there before is counted once.
    placing: Mutex<()>,
}

impl Space {
    /// The room that the attachments of a log take.
    pub fn of(store: &Store, bytes_max: u64) -> Result<Space, LogError> {
        let mut taken = 0;
        for folder in files_in(&store.path("attachments"))?.into_iter().filter(|path| path.is_dir()) {
            taken += files_in(&folder)?.iter().map(|path| length_of(path)).sum::<u64>();
        }
        Ok(Space { bytes_max, taken: AtomicU64::new(taken), placing: Mutex::new(()) })
    }

    /// Bytes taken.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }
}

/// The room of one arriving attachment; given back unless it stays.
struct Room {
    space: Arc<Space>,
    bytes: u64,
    /// What lies at its place already, and would be replaced: this much may go beyond the limit for a while.
    again: u64,
}

impl Room {
    /// Takes room for `bytes` in all.
    fn take(&mut self, bytes: u64) -> Result<(), Problem> {
        let more = bytes.saturating_sub(self.bytes);
        let most = self.space.bytes_max.saturating_add(self.again);
        let fits = |taken: u64| taken.checked_add(more).filter(|taken| more == 0 || *taken <= most);
        let taken = self.space.taken.try_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        let taken = match taken {
            Ok(_) => {
                self.bytes += more;
                return Ok(());
            }
            Err(taken) => taken - self.bytes,
        };
        let detail = format!(
            "attachments may take {} bytes in all on this server and take {taken}; expected at most {} bytes, found {bytes}",
            self.space.bytes_max,
            self.space.bytes_max.saturating_sub(taken),
        );
        Err(Problem::new(StatusCode::INSUFFICIENT_STORAGE, "no room", detail))
    }

    /// The attachment stays; what it replaced, `replaced` bytes, is gone.
    fn keep(&mut self, replaced: u64) {
        self.bytes = 0;
        self.space.taken.fetch_sub(replaced, Ordering::Relaxed);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.space.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// How long a file is; nothing if there is none.
pub fn length_of(path: &std::path::Path) -> u64 {
    path.metadata().map_or(0, |found| found.len())
}

/// A file under `incoming`, removed when it is no longer arriving, whatever became of it.
struct Arriving {
    path: PathBuf,
    room: Room,
}

impl Drop for Arriving {
    fn drop(&mut self) {
        // After it has been moved to its place there is nothing left to remove.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Writes the body to the file, durably, and returns its digest and length.
async fn receive(arriving: &mut Arriving, mut body: LimitedBody) -> Result<(AttachmentDigest, u64), Problem> {
    let path = arriving.path.clone();
    let wrong = |source| LogError::Io { path: path.clone(), source };
    let mut file = tokio::fs::File::create_new(&arriving.path).await.map_err(wrong)?;
    let mut sha = Sha256::new();
    let mut bytes = 0;
    while let Some(piece) = body.next().await? {
        sha.update(&piece);
        bytes += piece.len() as u64;
        arriving.room.take(bytes)?;
        file.write_all(&piece).await.map_err(wrong)?;
    }
    file.flush().await.map_err(wrong)?;
    file.sync_all().await.map_err(wrong)?;
    Ok((AttachmentDigest(sha.finalize().into()), bytes))
}

/// Moves an attachment to its place; whether it was not there before, whole.
fn keep(store: &Store, digest: AttachmentDigest, mut arriving: Arriving) -> Result<bool, LogError> {
    let path = path_of(store, digest);
    if path.exists() {
        // What lies there may have been damaged since, and here is what it should be.
        match hash_file(&path) {
            Ok(found) if found == digest => return Ok(false),
            Ok(found) => tracing::warn!("attachment {digest} is replaced: the file had SHA-256 {found}"),
            Err(error) => tracing::warn!("attachment {digest} is replaced: {error}"),
        }
    }
    let folder = path.parent().expect("ledger: an attachment lies in a folder");
    ensure_folder(folder).map_err(LogError::io(folder))?;
    let space = arriving.room.space.clone();
    {
        // Another upload of the same bytes may win; then the same bytes are replaced by themselves.
        let _placing = space.placing.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let replaced = length_of(&path);
        std::fs::rename(&arriving.path, &path).map_err(LogError::io(&path))?;
        arriving.room.keep(replaced);
    }
    sync_folder(folder).map_err(LogError::io(folder))?;
    Ok(true)
}

fn digest_of(name: &str) -> Result<AttachmentDigest, Problem> {
    name.parse().map_err(bad_name)
}
