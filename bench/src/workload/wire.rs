//! The protocols of servers of items: memcached's meta protocol, and the one of Redis (RESP).
//!
//! Owns: requests, answers, keys. Never touches: sockets.

use anyhow::{Result, bail};

use super::zipfian;

/// Follows each value, in both.
pub const END_OF_VALUE: &[u8] = b"\r\n";
/// The number of digits of the largest number.
const MOST_DIGITS: usize = 20;

/// A protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// memcached's meta commands.
    Memcached,
    /// RESP.
    Redis,
}

/// How to store many items without an answer to each.
#[derive(Clone, Copy, Debug)]
pub struct QuietLoad {
    /// Sent before the items.
    pub begin: &'static [u8],
    /// Sent after them.
    pub end: &'static [u8],
    /// The server's answer to the end; it sends nothing else unless it rejects an item.
    pub answer: &'static [u8],
}

impl Wire {
    /// How many items are stored in one go.
    pub fn quiet_load(self) -> QuietLoad {
        match self {
            Wire::Memcached => QuietLoad { begin: b"", end: b"mn\r\n", answer: b"MN\r\n" },
            Wire::Redis => QuietLoad {
                begin: b"*3\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n$3\r\nOFF\r\n",
                end: b"*3\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n$2\r\nON\r\n",
                answer: b"+OK\r\n",
            },
        }
    }

    /// Adds a request for an item: `mg KEY v`, or `GET KEY`.
    pub fn append_get(self, request: &mut Vec<u8>, item: u64) {
        match self {
            Wire::Memcached => {
                request.extend_from_slice(b"mg ");
                append_key(request, item);
                request.extend_from_slice(b" v\r\n");
            }
            Wire::Redis => {
                request.extend_from_slice(b"*2\r\n$3\r\nGET\r\n");
                append_key_string(request, item);
            }
        }
    }

    /// Adds a request to store an item, `ms KEY SIZE q` or `SET KEY VALUE`. The value begins with the item's number, so that it can be checked.
    pub fn append_set(self, request: &mut Vec<u8>, item: u64, value_size: usize) {
        match self {
            Wire::Memcached => {
                request.extend_from_slice(b"ms ");
                append_key(request, item);
                request.push(b' ');
                append_number(request, value_size as u64);
                request.extend_from_slice(b" q\r\n");
            }
            Wire::Redis => {
                request.extend_from_slice(b"*3\r\n$3\r\nSET\r\n");
                append_key_string(request, item);
                request.push(b'$');
                append_number(request, value_size as u64);
                request.extend_from_slice(b"\r\n");
            }
        }
        let value_end = request.len() + value_size;
        request.extend_from_slice(&item.to_le_bytes()[..value_size.min(8)]);
        request.resize(value_end, b'v');
        request.extend_from_slice(END_OF_VALUE);
    }

    /// What precedes a value of this size in an answer.
    pub fn header(self, value_size: usize) -> Vec<u8> {
        match self {
            Wire::Memcached => format!("VA {value_size}\r\n"),
            Wire::Redis => format!("${value_size}\r\n"),
        }
        .into_bytes()
    }
}

/// Errors: this answer does not hold the complete value of this item.
pub fn check_value(response: &[u8], header: &[u8], item: u64) -> Result<()> {
    let whole = response.starts_with(header) && response.ends_with(END_OF_VALUE);
    let value = response.get(header.len()..).unwrap_or_default();
    if !whole || value.len() >= 8 && value[..8] != item.to_le_bytes() {
        let seen = String::from_utf8_lossy(&response[..response.len().min(40)]);
        bail!("item {item} came back as '{}..': were items evicted?", seen.escape_debug());
    }
    Ok(())
}

/// YCSB's key: `user` and the hash of the item's number.
fn append_key(text: &mut Vec<u8>, item: u64) {
    text.extend_from_slice(b"user");
    append_number(text, zipfian::hash(item));
}

/// The key as a RESP string.
fn append_key_string(text: &mut Vec<u8>, item: u64) {
    let mut key = Vec::with_capacity(4 + MOST_DIGITS);
    append_key(&mut key, item);
    text.push(b'$');
    append_number(text, key.len() as u64);
    text.extend_from_slice(b"\r\n");
    text.extend_from_slice(&key);
    text.extend_from_slice(b"\r\n");
}

/// Decimal digits, without the machinery of `format!`: the client must stay faster than the server.
fn append_number(text: &mut Vec<u8>, mut number: u64) {
    let start = text.len();
    loop {
        text.push(b'0' + (number % 10) as u8);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    text[start..].reverse();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_format_writes_them() {
        for number in [0, 7, 10, 1_234_567_890, u64::MAX] {
            let mut text = Vec::new();
            append_number(&mut text, number);
            assert_eq!(text, number.to_string().into_bytes());
        }
    }

    #[test]
    fn a_set_carries_key_size_and_value() {
        let set = |wire: Wire| {
            let mut request = Vec::new();
            wire.append_set(&mut request, 5, 16);
            request
        };
        let value = [&5u64.to_le_bytes()[..], b"vvvvvvvv\r\n"].concat();
        let key = format!("user{}", zipfian::hash(5));
        let head = format!("ms {key} 16 q\r\n").into_bytes();
        assert_eq!(set(Wire::Memcached), [&head[..], &value].concat());
        let head = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n$16\r\n", key.len()).into_bytes();
        assert_eq!(set(Wire::Redis), [&head[..], &value].concat());
    }

    #[test]
    fn a_get_names_its_key() {
        let get = |wire: Wire| {
            let mut request = Vec::new();
            wire.append_get(&mut request, 7);
            String::from_utf8(request).unwrap()
        };
        let key = format!("user{}", zipfian::hash(7));
        assert_eq!(get(Wire::Memcached), format!("mg {key} v\r\n"));
        assert_eq!(get(Wire::Redis), format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len()));
    }

    #[test]
    fn a_value_comes_behind_its_size() {
        assert_eq!(Wire::Memcached.header(512), b"VA 512\r\n");
        assert_eq!(Wire::Redis.header(512), b"$512\r\n");
    }

    #[test]
    fn wrong_values_are_noticed() {
        for wire in [Wire::Memcached, Wire::Redis] {
            let header = wire.header(8);
            let value = [&header[..], &3u64.to_le_bytes(), END_OF_VALUE].concat();
            assert!(check_value(&value, &header, 3).is_ok());
            assert!(check_value(&value, &header, 4).is_err());
            for missing in ["EN\r\nEN\r\nEN\r\nEN\r\n", "$-1\r\n$-1\r\n$-1\r\n$-1\r\n"] {
                assert!(check_value(missing.as_bytes(), &header, 3).is_err(), "{wire:?}");
            }
        }
    }
}
