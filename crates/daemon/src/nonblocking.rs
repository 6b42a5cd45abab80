//! A single attempt to read or write, for servers that must not wait for a client.
//!
//! Owns: which errors mean that there is nothing to do yet. Never touches: what is said.

use std::io::{self, ErrorKind, Read, Write};

/// The most that is read at once.
const LONGEST_PIECE: usize = 8 << 10;

/// Appends what has come, at most so many bytes, and says how many; 0 is the end, and None that nothing has come yet.
///
/// Errors: the other end has gone.
pub(crate) fn read_more(stream: &mut impl Read, text: &mut Vec<u8>, most: usize) -> io::Result<Option<usize>> {
    let mut piece = [0; LONGEST_PIECE];
    let Some(count) = unless_early(stream.read(&mut piece[..most.min(LONGEST_PIECE)]))? else { return Ok(None) };
    text.extend_from_slice(&piece[..count]);
    Ok(Some(count))
}

/// Writes what the other end takes of the rest, and says whether all is written.
///
/// Errors: the other end has gone.
pub(crate) fn write_more(stream: &mut impl Write, bytes: &[u8], written: &mut usize) -> io::Result<bool> {
    *written += unless_early(stream.write(&bytes[*written..]))?.unwrap_or(0);
    Ok(*written == bytes.len())
}

fn unless_early(tried: io::Result<usize>) -> io::Result<Option<usize>> {
    match tried {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        tried => tried.map(Some),
    }
}
