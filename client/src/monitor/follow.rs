//! One look at a log: its checkpoint, and everything below it that has not been hashed yet.
//!
//! Every entry is hashed here, and every tree grown here; a checkpoint is believed only if it is the root of that, or
//! if the tiles prove it to begin with that. What does not fit is a finding and stops the following there.

use crate::http::{HttpError, Server};
use crate::monitor::finding::{Finding, Kind};
use crate::monitor::rules::{Read, Rules};
use crate::monitor::state::{Known, State, StateError, damaged};
use crate::monitor::tiles::{TileError, Tiles};
use schemas::challenge::CHECKPOINT_BYTES_MAX;
use schemas::statement::Statement;
use serde_json::json;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use tlog::checkpoint::{Checkpoint, CheckpointError};
use tlog::edge::RightEdge;
use tlog::hash::{Hash, leaf_hash};
use tlog::note::{Verifier as _, VerifierKey};
use tlog::proof::{
    ConsistencyProof, Leaf, ProveError, check_consistency, check_inclusion, prove_consistency,
    prove_inclusion,
};
use tlog::tile::{TILE_WIDTH, Tile, TileKind, TileReadError, TileReader, TileSource as _, tile_in_tree};
use tlog::tree::{LeafIndex, TreeHead, TreeSize, root_hash};

const TIMEOUT_MS: u64 = 30_000;
/// Most threads that check signatures.
const THREADS_MAX: usize = 8;
/// How often a log is looked at again that grew under the eyes.
const AGAIN_MAX: usize = 5;

/// Why the log could not be followed; not its fault, as far as anybody can tell.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The state failed.
    #[error(transparent)]
    State(#[from] StateError),
    /// No answer, or a no.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The checkpoint is not signed by the log.
    #[error("the server's checkpoint: {0}")]
    Checkpoint(#[from] CheckpointError),
    /// Somebody said stop.
    #[error("stopped at size {at}, expected to follow to size {size}")]
    Stopped {
        /// How far it came.
        at: TreeSize,
        /// How far the log goes.
        size: TreeSize,
    },
}

impl FollowError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            FollowError::State(error) => error.hint(),
            FollowError::Checkpoint(_) => {
                Some("is --log-key the key of the log at that address? its operator knows".into())
            }
            FollowError::Http(HttpError::Unreachable { .. }) => {
                Some("what was found before is in the state; run it again when the server is up".into())
            }
            _ => None,
        }
    }
}

/// What stops the following of a log.
enum Stop {
    Finding(Finding),
    Error(FollowError),
}

impl<E: Into<FollowError>> From<E> for Stop {
    fn from(error: E) -> Stop {
        Stop::Error(error.into())
    }
}

impl From<Finding> for Stop {
    fn from(finding: Finding) -> Stop {
        Stop::Finding(finding)
    }
}

impl From<TileError> for Stop {
    fn from(error: TileError) -> Stop {
        match error {
            TileError::Http(error) => Stop::Error(error.into()),
            TileError::Withheld { path } => {
                let message = format!("{path} is not there, although the log signed a tree that has it");
                Finding::new(Kind::Withheld, path, message).into()
            }
            TileError::Bundle { path, source } => {
                let message = format!("{path} is no such bundle: {source}");
                Finding::new(Kind::Tile, path, message).into()
            }
        }
    }
}

impl From<TileReadError<TileError>> for Stop {
    fn from(error: TileReadError<TileError>) -> Stop {
        match error {
            TileReadError::Source { source, .. } => source.into(),
            TileReadError::WrongLength { ref path, .. } => {
                Finding::new(Kind::Tile, path.clone(), error.to_string()).into()
            }
            TileReadError::OutsideTree { .. } => {
                panic!("monitor: a hash beyond the tree was asked for: {error}")
            }
        }
    }
}

impl From<ProveError<TileReadError<TileError>>> for Stop {
    fn from(error: ProveError<TileReadError<TileError>>) -> Stop {
        match error {
            ProveError::Read(error) => error.into(),
            other => panic!("monitor: {other}"),
        }
    }
}

/// A signed checkpoint.
struct Signed {
    head: TreeHead,
    note: String,
}

/// A log to look at.
pub(crate) struct Follower<'a> {
    pub(crate) server: &'a Server,
    pub(crate) log: &'a VerifierKey,
    pub(crate) state: &'a State,
    /// Entry bundles between two changes of the state.
    pub(crate) bundles_per_change: u64,
    /// Set when the following is to end.
    pub(crate) stop: &'a AtomicBool,
    /// The size of the tree that was looked at last.
    pub(crate) looked_at: Cell<TreeSize>,
}

impl Follower<'_> {
    /// Looks once. What is wrong with the log is kept in the state; an error says that something could not be checked.
    pub(crate) fn look(&self, now_unix_s: u64) -> Result<(), FollowError> {
        let rules = Rules { log: self.log, now_unix_s };
        let mut stopped = self.catch_up(&rules);
        for _ in 0..AGAIN_MAX {
            // A log that has grown meanwhile may have other partial tiles than it had.
            let Err(Stop::Finding(Finding { kind: Kind::Withheld, .. })) = &stopped else { break };
            if self.checkpoint()?.head.size == self.looked_at.get() {
                break;
            }
            stopped = self.catch_up(&rules);
        }
        let change = self.state.begin()?;
        let result = match stopped {
            Ok(()) => rules.overdue(&change).map_err(FollowError::from),
            Err(Stop::Finding(finding)) => rules.find(&change, finding).map_err(FollowError::from),
            Err(Stop::Error(error)) => Err(error),
        };
        change.finish()?;
        result
    }

    fn catch_up(&self, rules: &Rules) -> Result<(), Stop> {
        let signed = self.checkpoint()?;
        self.looked_at.set(signed.head.size);
        let known = self.state.known()?;
        self.hold_against_the_past(&signed, &known)?;
        if signed.head.size <= known.head.size {
            return Ok(());
        }
        let tiles = Tiles::at(self.server);
        let reader = TileReader { size: signed.head.size, source: &tiles };
        self.continues(&reader, known.head, &signed, &known)?;
        let mut at = known.head.size;
        while at < signed.head.size {
            at = self.advance(at, &signed, &reader, rules)?;
            if at < signed.head.size && self.stop.load(Ordering::Relaxed) {
                return Err(FollowError::Stopped { at, size: signed.head.size }.into());
            }
        }
        Ok(())
    }

    fn checkpoint(&self) -> Result<Signed, FollowError> {
        let note = self.server.fetch("/checkpoint", CHECKPOINT_BYTES_MAX as u64, TIMEOUT_MS)?;
        let checkpoint = Checkpoint::open(&note, self.log.name().as_str(), self.log)?;
        // A note that opens is UTF-8.
        Ok(Signed { head: checkpoint.head, note: String::from_utf8_lossy(&note).into_owned() })
    }

    /// A checkpoint of a tree no larger than the one hashed here, or than one seen before.
    fn hold_against_the_past(&self, signed: &Signed, known: &Known) -> Result<(), Stop> {
        let Some((seen, seen_note)) = &known.seen else { return Ok(()) };
        let size = signed.head.size;
        if size <= known.head.size {
            let own = self.state.root(size, known.head.size)?;
            if own != signed.head.root {
                return Err(fork(size, own, signed.head.root, [seen_note, &signed.note], None).into());
            }
        }
        if size < *seen {
            let message = format!(
                "the server shows a tree of size {size} after one of size {seen}: an old copy, or set back"
            );
            let subject = format!("{size} after {seen}");
            let evidence = json!({ "notes": [seen_note, signed.note] });
            return Err(Finding::new(Kind::Shrunken, subject, message).with(evidence).into());
        }
        Ok(())
    }

    /// The tree that was hashed here is the beginning of the signed one: proven from the tiles.
    fn continues(
        &self,
        reader: &TileReader<Tiles>,
        own: TreeHead,
        signed: &Signed,
        known: &Known,
    ) -> Result<(), Stop> {
        let proof = prove_consistency(own.size, signed.head.size, reader)?;
        if check_consistency(&proof, own, signed.head).is_ok() {
            return Ok(());
        }
        // Do the tiles prove another beginning of that size?
        let root = root_hash(own.size, reader)?;
        let other = TreeHead { root, ..own };
        if check_consistency(&proof, other, signed.head).is_ok()
            && let Some((_, seen_note)) = &known.seen
        {
            let notes = [seen_note, &signed.note];
            return Err(fork(own.size, own.root, root, notes, Some(&proof)).into());
        }
        Err(self.bad_tiles(signed.head).into())
    }

    fn bad_tiles(&self, head: TreeHead) -> Finding {
        let message = format!("the tiles do not hash to the signed root {} of size {}", head.root, head.size);
        Finding::new(Kind::Tile, format!("tree of size {}", head.size), message)
    }

    /// Hashes and judges a few bundles, and keeps them if they are proven to be the signed tree's. Returns how far.
    fn advance(
        &self,
        from: TreeSize,
        signed: &Signed,
        reader: &TileReader<Tiles>,
        rules: &Rules,
    ) -> Result<TreeSize, Stop> {
        let width = u64::from(TILE_WIDTH);
        let to = TreeSize(((from.0 / width + self.bundles_per_change) * width).min(signed.head.size.0));
        let change = self.state.begin()?;
        let mut edge = RightEdge::read(from, self.state).map_err(damaged)?;
        let mut upper = std::collections::BTreeMap::new();
        let mut at = from.0;
        while at < to.0 {
            let bundle = at / width;
            let tile = tile_in_tree(TileKind::Entries, bundle, signed.head.size);
            let tile = tile.expect("monitor: a bundle below the tree's size");
            let (entries, leaves) = self.bundle(tile, reader, signed)?;
            let new = (at - bundle * width) as usize;
            if self.level_0(tile, &edge)? != leaves[..new] {
                return Err(self.bad_tiles(signed.head).into());
            }
            for (index, read) in (at..).zip(open_all(&entries[new..])) {
                match index {
                    0 => rules.genesis(&entries[0], &change)?,
                    _ => rules.entry(index, &read, &change)?,
                }
            }
            for made in edge.append(&leaves[new..]) {
                change.keep_tile(&made)?;
                if made.tile.kind != TileKind::Hashes(0) {
                    upper.insert((made.tile.kind, made.tile.index), made);
                }
            }
            at += (entries.len() - new) as u64;
        }
        // A tile above the entries counts in its last form: that of the signed tree.
        for ((kind, index), made) in upper {
            let last = tile_in_tree(kind, index, signed.head.size) == Some(made.tile);
            if last && tlog::tile::encode_hashes(&reader.read_hashes_of(made.tile)?) != made.bytes {
                let path = made.tile.path();
                let message = format!("{path} is not what the entries hash to");
                return Err(Finding::new(Kind::Tile, path, message).into());
            }
        }
        let own = edge.head();
        let proof = prove_consistency(own.size, signed.head.size, reader)?;
        if check_consistency(&proof, own, signed.head).is_err() {
            return Err(self.bad_tiles(signed.head).into());
        }
        if own.size == signed.head.size {
            rules.published(own.size, &change)?;
        }
        // POINT OF NO RETURN: what is told from here on has been kept. A crash before loses this look alone.
        change.keep_head(own, signed.head.size, &signed.note)?;
        change.finish()?;
        Ok(own.size)
    }

    /// The leaf hashes of a tile that were made here before.
    fn level_0(&self, entries: Tile, edge: &RightEdge) -> Result<Vec<Hash>, StateError> {
        let tile = tile_in_tree(TileKind::Hashes(0), entries.index, edge.size());
        let Some(tile) = tile else { return Ok(Vec::new()) };
        let bytes = self.state.read_tile(tile)?;
        tlog::tile::decode_hashes(&bytes).map_err(|error| StateError::Damaged(error.to_string()))
    }

    /// The entries of a bundle and their leaf hashes, which are those of the tile beside it. If not, the tree tells which
    /// of the two is not the log's.
    fn bundle(
        &self,
        tile: Tile,
        reader: &TileReader<Tiles>,
        signed: &Signed,
    ) -> Result<(Vec<Vec<u8>>, Vec<Hash>), Stop> {
        let entries = reader.source.entries(tile)?;
        let leaves: Vec<Hash> = entries.iter().map(|entry| leaf_hash(entry)).collect();
        let beside = reader.read_hashes_of(Tile { kind: TileKind::Hashes(0), ..tile })?;
        let Some(at) = leaves.iter().zip(&beside).position(|(leaf, other)| leaf != other) else {
            return Ok((entries, leaves));
        };
        let index = LeafIndex(tile.index * u64::from(TILE_WIDTH) + at as u64);
        let proof = prove_inclusion(index, signed.head.size, reader)?;
        let hash = beside[at];
        if check_inclusion(&proof, Leaf { index, hash }, signed.head).is_err() {
            let path = Tile { kind: TileKind::Hashes(0), ..tile }.path();
            let message = format!("{path} does not hash to the signed root of size {}", signed.head.size);
            return Err(Finding::new(Kind::Tile, path, message).into());
        }
        let message = format!(
            "{} holds another entry {index} than the signed tree of size {}: its leaf hash is {}, expected {hash}",
            tile.path(),
            signed.head.size,
            leaves[at]
        );
        let evidence = json!({ "note": signed.note, "proof": texts(&proof.0) });
        Err(Finding::new(Kind::Entry, index.to_string(), message).with(evidence).into())
    }
}

/// Two signed trees of which neither is the beginning of the other.
fn fork(
    size: TreeSize,
    own: Hash,
    other: Hash,
    notes: [&String; 2],
    proof: Option<&ConsistencyProof>,
) -> Finding {
    let message = format!(
        "the log has signed two histories: the first {size} entries have root {own} in what was followed and {other} \
         in a checkpoint it shows now"
    );
    let evidence = json!({
        "notes": notes,
        "size": size.0,
        "roots": [own.to_base64(), other.to_base64()],
        "consistency_of_the_second": proof.map(|proof| texts(&proof.0)),
    });
    Finding::new(Kind::Fork, format!("{size} {other}"), message).with(evidence)
}

fn texts(hashes: &[Hash]) -> Vec<String> {
    hashes.iter().map(Hash::to_base64).collect()
}

/// Reads statements and checks their signatures, on a few threads.
fn open_all(entries: &[Vec<u8>]) -> Vec<Read> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    let each = entries.len().div_ceil(threads).max(16);
    let open = |part: &[Vec<u8>]| part.iter().map(|entry| Statement::open(entry)).collect::<Vec<Read>>();
    std::thread::scope(|scope| {
        let parts: Vec<_> = entries.chunks(each).map(|part| scope.spawn(move || open(part))).collect();
        let done =
            parts.into_iter().map(|part| part.join().expect("monitor: reading a statement does not panic"));
        done.flatten().collect()
    })
}
