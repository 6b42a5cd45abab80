//! A single attempt to read or write, for servers that must not wait for a client.
//!
//! Owns: which errors mean that nothing can be done yet. Never touches: the contents.

use std::io::{self, ErrorKind, Read, Write};

/// The most that is read at once.
const LONGEST_PIECE: usize = 8 << 10;

/// Appends the bytes that have arrived, at most `most`, and returns how many; 0 is the end, None means nothing has
/// arrived yet.
///
/// Errors: the peer has disconnected.
pub(crate) fn read_more(stream: &mut impl Read, text: &mut Vec<u8>, most: usize) -> io::Result<Option<usize>> {
    let mut piece = [0; LONGEST_PIECE];
    let Some(count) = unless_early(stream.read(&mut piece[..most.min(LONGEST_PIECE)]))? else { return Ok(None) };
    text.extend_from_slice(&piece[..count]);
    Ok(Some(count))
}

/// Writes as much of the rest as the peer accepts, and returns whether all is written.
///
/// Errors: the peer has disconnected.
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
