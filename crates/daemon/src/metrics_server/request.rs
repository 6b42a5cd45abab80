//! HTTP requests and responses.
//!
//! Owns: the small subset of HTTP that is supported. Never touches: sockets, or metrics.

use std::net::IpAddr;

/// The longest request, in bytes.
pub const MOST_REQUEST: usize = 8 << 10;
/// Headers that a request may have; no collector sends nearly as many.
const MOST_HEADERS: usize = 64;
/// The end of a request; a body is not read.
const END: &[u8] = b"\r\n\r\n";

/// The response to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response {
    /// 200, with the metrics.
    Metrics,
    /// 400
    BadRequest,
    /// 404
    NotFound,
    /// 405
    MethodNotAllowed,
    /// 421: the request is for another host. A page in a browser can reach this address by a name of its own (DNS rebinding).
    Misdirected,
    /// 431
    TooLong,
}

/// The response to the request so far; None if more is to come. `new_from` is the length at the previous call, so a request that
/// arrives byte by byte is not rescanned each time.
pub fn answer_to(request: &[u8], new_from: usize) -> Option<Response> {
    let unseen = &request[new_from.saturating_sub(END.len() - 1).min(request.len())..];
    if !unseen.windows(END.len()).any(|bytes| bytes == END) {
        return (request.len() >= MOST_REQUEST).then_some(Response::TooLong);
    }
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let whole = parsed.parse(request).is_ok_and(|status| status.is_complete());
    Some(match (parsed.method, parsed.path) {
        (Some(_), Some(_)) if whole && !parsed.headers.iter().all(names_this_machine) => Response::Misdirected,
        (Some(method), Some(target)) if whole => answer(method, target),
        _ => Response::BadRequest,
    })
}

/// Whether a header is not `Host`, or names this machine by its loopback address.
fn names_this_machine(header: &httparse::Header<'_>) -> bool {
    if !header.name.eq_ignore_ascii_case("host") {
        return true;
    }
    let host = str::from_utf8(header.value).unwrap_or_default().trim();
    let without_port = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    let name = without_port.map_or(host, |(name, _)| name);
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn answer(method: &str, target: &str) -> Response {
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    match (path, method) {
        ("/metrics", "GET") => Response::Metrics,
        ("/metrics", _) => Response::MethodNotAllowed,
        _ => Response::NotFound,
    }
}

impl Response {
    /// Status line and headers for a body of this length, including the empty line.
    pub(super) fn head(self, content_type: &str, body_bytes: usize) -> String {
        let (status, more) = match self {
            Response::Metrics => ("200 OK", ""),
            Response::BadRequest => ("400 Bad Request", ""),
            Response::NotFound => ("404 Not Found", ""),
            Response::MethodNotAllowed => ("405 Method Not Allowed", "Allow: GET\r\n"),
            Response::Misdirected => ("421 Misdirected Request", ""),
            Response::TooLong => ("431 Request Header Fields Too Large", ""),
        };
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {body_bytes}\r\n\
             X-Content-Type-Options: nosniff\r\nConnection: close\r\n{more}\r\n"
        )
    }

    /// The body of an error response.
    pub(super) fn error_body(self) -> &'static str {
        match self {
            Response::Metrics => "",
            Response::BadRequest => "this is no HTTP request\n",
            Response::NotFound => "metrics are at /metrics\n",
            Response::MethodNotAllowed => "metrics can only be read, with GET\n",
            Response::Misdirected => "ask for localhost, 127.0.0.1 or [::1]\n",
            Response::TooLong => "a request may have 8 KiB\n",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whole(request: &str) -> Option<Response> {
        answer_to(request.as_bytes(), 0)
    }

    #[test]
    fn metrics_are_got_and_nothing_else() {
        for (line, answer) in [
            ("GET /metrics HTTP/1.1", Response::Metrics),
            ("GET /metrics?name[]=up HTTP/1.0", Response::Metrics),
            ("HEAD /metrics HTTP/1.1", Response::MethodNotAllowed),
            ("POST /metrics HTTP/1.1", Response::MethodNotAllowed),
            ("GET / HTTP/1.1", Response::NotFound),
            ("POST / HTTP/1.1", Response::NotFound),
            ("GET /metrics/../metrics HTTP/1.1", Response::NotFound),
            ("GET /metrics", Response::BadRequest),
            ("", Response::BadRequest),
            ("\u{16}\u{3}\u{1}", Response::BadRequest),
        ] {
            assert_eq!(whole(&format!("{line}\r\nHost: localhost\r\n\r\n")), Some(answer), "{line}");
        }
    }

    #[test]
    fn only_names_of_this_machine_are_served() {
        let of = |host: &str| whole(&format!("GET /metrics HTTP/1.1\r\nhOSt: {host}\r\n\r\n"));
        for host in ["localhost", "LocalHost:9472", "127.0.0.1", "127.0.0.1:9472", "[::1]:9472", "[::1]", "127.3.2.1:1"]
        {
            assert_eq!(of(host), Some(Response::Metrics), "{host}");
        }
        for host in
            ["evil.example", "evil.example:9472", "10.0.0.1", "localhost.evil", "", "[::2]:1", "127.0.0.1:80:80"]
        {
            assert_eq!(of(host), Some(Response::Misdirected), "{host}");
        }
        assert_eq!(whole("GET /metrics HTTP/1.0\r\n\r\n"), Some(Response::Metrics), "a host is not needed");
    }

    #[test]
    fn a_request_ends_with_an_empty_line_or_is_too_long() {
        assert_eq!(whole("GET /metrics HTTP/1.1\r\nHost: a\r\n"), None);
        let long = format!("GET /metrics HTTP/1.1\r\nX-Long: {}", "a".repeat(MOST_REQUEST));
        assert_eq!(answer_to(&long.as_bytes()[..MOST_REQUEST - 1], 0), None);
        assert_eq!(answer_to(&long.as_bytes()[..MOST_REQUEST], 0), Some(Response::TooLong));
        let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(MOST_HEADERS + 1));
        assert_eq!(whole(&many), Some(Response::BadRequest));
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered_or_waited_for(bytes in any::<Vec<u8>>(), new_from in 0..300usize) {
            let _ = answer_to(&bytes, new_from);
            let _ = answer_to(&[&bytes, END].concat(), bytes.len());
        }

        #[test]
        fn the_answer_is_the_same_however_a_request_is_cut(line in "(GET|PUT) /(metrics)? HTTP/1\\.[01]", cut in 1..9usize) {
            let request = format!("{line}\r\nHost: localhost\r\n\r\n").into_bytes();
            let ends = (0..request.len()).step_by(cut).chain([request.len()]);
            let ends: Vec<usize> = ends.collect();
            let told = ends.windows(2).find_map(|part| answer_to(&request[..part[1]], part[0]));
            prop_assert_eq!(told, answer_to(&request, 0));
        }
    }
}
