//! Fewer connections where the system allows few open files: peers alone must not be able to keep the log from its own.

use crate::http::app::Limits;
use crate::http::server::ServeError;

/// With fewer a server cannot work.
const FILES_MIN: usize = 64;

/// Limits that leave half of what this process may open to files. Where nobody says how many that is, they stay.
pub(crate) fn within_open_files(limits: Limits) -> Result<Limits, ServeError> {
    let text = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let Some(files_max) = open_files_max(&text) else { return Ok(limits) };
    if files_max < FILES_MIN {
        return Err(ServeError::FewFiles { files_max, expected: FILES_MIN });
    }
    let connections_max = limits.connections_max.min(files_max / 2);
    if connections_max < limits.connections_max {
        let wanted = limits.connections_max;
        tracing::warn!(
            "at most {connections_max} connections at once instead of {wanted}: this process may open {files_max} \
             files; {} would do (`ulimit -n`)",
            2 * wanted
        );
    }
    Ok(Limits { connections_max, ..limits })
}

/// The soft limit in a text like Linux's /proc/self/limits; none if it is not there, or unlimited.
fn open_files_max(text: &str) -> Option<usize> {
    let values = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    values.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_read_where_it_stands() {
        let text = "Limit Soft Hard Units\nMax processes   7   8   processes\n\
                    Max open files            256            1048576              files     \n";
        assert_eq!(open_files_max(text), Some(256));
        assert_eq!(open_files_max("Max open files  unlimited  unlimited  files\n"), None);
        assert_eq!(open_files_max("Max processes  7  8  processes\n"), None);
        assert_eq!(open_files_max(""), None);
    }
}
