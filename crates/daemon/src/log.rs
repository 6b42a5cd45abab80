//! What the command, the daemon and the agent log, and where.
//!
//! Owns: the form of a line, and the level. Never touches: what is said.

use std::{env, fmt};

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{LevelFilter, ParseError, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

/// Logs warnings to standard error, or what `RUST_LOG` names. Call this once.
pub fn to_stderr() {
    let (filter, refused) = filter(env::var("RUST_LOG").ok().as_deref());
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    // Without colors, which a file would keep as escape sequences.
    let lines = lines.with_ansi(false).event_format(Line);
    tracing_subscriber::registry().with(lines.with_filter(filter)).init();
    if let Some(error) = refused {
        tracing::warn!("RUST_LOG is not a level such as `info` or `pilot=debug` ({error}): warnings are logged");
    }
}

/// What is logged where this is asked for; warnings, where nothing is, or what nobody understands.
fn filter(asked: Option<&str>) -> (Targets, Option<ParseError>) {
    let warnings = Targets::new().with_default(LevelFilter::WARN);
    match asked.map(str::parse) {
        None => (warnings, None),
        Some(Ok(levels)) => (levels, None),
        Some(Err(error)) => (warnings, Some(error)),
    }
}

/// `warning: text`, as errors are told. The journal knows the time.
struct Line;

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        write!(writer, "{}: ", prefix(*event.metadata().level()))?;
        context.format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

fn prefix(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warning",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("a lock").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_is_asked_for_is_logged_and_warnings_otherwise() {
        let logs = |asked: Option<&str>, target, level| filter(asked).0.would_enable(target, &level);
        assert!(logs(None, "pilot", Level::WARN) && !logs(None, "pilot", Level::INFO));
        assert!(logs(Some("pilot=debug"), "pilot", Level::DEBUG) && !logs(Some("pilot=debug"), "daemon", Level::WARN));
        assert!(logs(Some("pilot=loud"), "pilot", Level::WARN) && filter(Some("pilot=loud")).1.is_some());
    }

    #[test]
    fn a_line_begins_as_an_error_does() {
        let written = Written::default();
        let writer = written.clone();
        let lines = tracing_subscriber::fmt().with_writer(move || writer.clone());
        let subscriber = lines.with_ansi(false).event_format(Line).finish();
        tracing::subscriber::with_default(subscriber, || tracing::warn!(pid = 7, "no room on {}", "node 0"));
        let text = String::from_utf8(written.0.lock().expect("a lock").clone()).expect("UTF-8");
        assert_eq!(text, "warning: no room on node 0 pid=7\n");
    }
}
