//! Between hashes as stored and the same hashes made again from what lies below them: the choice that leads to a hash
//! which is known.

use tlog::hash::Hash;

/// Most places at which both sides may differ for every combination to be tried.
const PLACES_MAX: usize = 10;

/// Rows of hashes, each as stored (as many as there are) and as derived (where that could be done).
pub struct Sides<'a> {
    pub stored: Vec<&'a [Hash]>,
    pub derived: &'a [Vec<Option<Hash>>],
}

impl Sides<'_> {
    /// The rows that `lead` up to what is known; none if no choice does that is tried: whole rows from one side first,
    /// then single hashes if they are few.
    pub fn choose(&self, lead: impl Fn(&[Vec<Hash>]) -> bool) -> Option<Vec<Vec<Hash>>> {
        let count = self.derived.len();
        for chosen in 0..1usize << count {
            let row = |at| self.row(at, chosen >> at & 1 == 1);
            if let Some(rows) = (0..count).map(row).collect::<Option<Vec<_>>>()
                && lead(&rows)
            {
                return Some(rows);
            }
        }
        let mut rows: Vec<Vec<Hash>> = (0..count).map(|at| self.row(at, false)).collect::<Option<_>>()?;
        let places = self.places();
        if places.len() > PLACES_MAX {
            return None;
        }
        for chosen in 0..1usize << places.len() {
            for (bit, (row, at, stored, derived)) in places.iter().enumerate() {
                rows[*row][*at] = if chosen >> bit & 1 == 0 { *stored } else { *derived };
            }
            if lead(&rows) {
                return Some(rows);
            }
        }
        None
    }

    /// Best guesses where nothing leads up; a row ends where neither side has a hash.
    pub fn guess(&self) -> Vec<Vec<Hash>> {
        let hash = |row: usize, at: usize| self.stored[row].get(at).copied().or(self.derived[row][at]);
        let rows = self.derived.iter().enumerate();
        rows.map(|(row, derived)| (0..derived.len()).map_while(|at| hash(row, at)).collect()).collect()
    }

    /// A row from one side, and from the other one where that has no hash.
    fn row(&self, row: usize, derived: bool) -> Option<Vec<Hash>> {
        let stored = self.stored[row];
        let hash = |(at, made): (usize, &Option<Hash>)| {
            let found = stored.get(at).copied();
            if derived { made.or(found) } else { found.or(*made) }
        };
        self.derived[row].iter().enumerate().map(hash).collect()
    }

    /// Where both sides have a hash and differ.
    fn places(&self) -> Vec<(usize, usize, Hash, Hash)> {
        let mut places = Vec::new();
        for (row, derived) in self.derived.iter().enumerate() {
            for (at, (stored, derived)) in self.stored[row].iter().zip(derived).enumerate() {
                if let Some(derived) = derived
                    && derived != stored
                {
                    places.push((row, at, *stored, *derived));
                }
            }
        }
        places
    }
}
