//! Which file a command runs: through PATH, and through the first lines of scripts.
//!
//! Owns: the search. Never touches: a program's contents.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::program::ProgramError;

/// The default search path for commands (execvp(3)).
const DEFAULT_PATH: &str = "/bin:/usr/bin";
/// Bytes of a script's first line that the kernel reads (`BINPRM_BUF_SIZE`).
const FIRST_LINE: u64 = 256;
/// How deeply scripts may be nested; the kernel allows no more.
const MOST_SCRIPTS: usize = 5;

/// What a command resolves to.
#[derive(Debug)]
pub(super) struct Found {
    /// The program itself, never a script.
    pub(super) program: PathBuf,
    /// The script that is run, if the program is only its interpreter.
    pub(super) script: Option<PathBuf>,
}

/// The program behind a command. Without a slash it is searched in `path`, a list like PATH.
pub(super) fn find(command: &OsStr, path: Option<&OsStr>) -> Result<Found, ProgramError> {
    let first = resolve(command, path)?;
    let mut program = first.clone();
    for scripts in 0..=MOST_SCRIPTS {
        let Some(named) = first_line(&program)?.as_deref().and_then(interpreter) else {
            return Ok(Found { program, script: (scripts > 0).then_some(first) });
        };
        let behind = named.behind_env.and_then(|word| resolve(OsStr::new(&word), path).ok());
        program = match behind {
            Some(behind) => behind,
            None => resolve(OsStr::new(&named.program), path)
                .map_err(|cause| ProgramError::Interpreter { script: program, cause: Box::new(cause) })?,
        };
    }
    Err(ProgramError::Loop { program })
}

fn resolve(command: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, ProgramError> {
    let shown = || command.to_string_lossy().into_owned();
    if command.as_encoded_bytes().contains(&b'/') {
        let program = PathBuf::from(command);
        return match program.try_exists() {
            Ok(false) => Err(ProgramError::NotFound { command: shown() }),
            _ if !is_executable(&program) => Err(ProgramError::NotExecutable { command: shown() }),
            _ => Ok(program),
        };
    }
    let path = path.map_or_else(|| OsString::from(DEFAULT_PATH), OsStr::to_owned);
    let mut named = std::env::split_paths(&path).map(|directory| directory.join(command));
    named.find(|file| is_executable(file)).ok_or_else(|| ProgramError::NotFound { command: shown() })
}

fn is_executable(file: &Path) -> bool {
    file.is_file() && access(file, Access::EXEC_OK).is_ok()
}

/// The first line of a file; None if the file is executable but not readable.
fn first_line(program: &Path) -> Result<Option<Vec<u8>>, ProgramError> {
    let mut bytes = Vec::new();
    match File::open(program).and_then(|file| file.take(FIRST_LINE).read_to_end(&mut bytes)) {
        Ok(_) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        Err(cause) => Err(ProgramError::Read { path: program.to_owned(), cause }),
    }
}

/// The interpreter in a script's first line.
#[derive(Debug, PartialEq, Eq)]
struct Interpreter {
    program: String,
    /// If the interpreter is `env`: the word after it, which may be the program to start, or one of `env`'s many options.
    behind_env: Option<String>,
}

fn interpreter(start: &[u8]) -> Option<Interpreter> {
    let line = start.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    let (program, argument) = line.trim().split_once([' ', '\t']).unwrap_or((line.trim(), ""));
    let is_env = Path::new(program).file_name() == Some(OsStr::new("env"));
    let mut words = argument.split_ascii_whitespace().filter(|_| is_env);
    let behind_env = words.find(|word| !word.starts_with('-') && !word.contains('=')).map(str::to_owned);
    (!program.is_empty()).then(|| Interpreter { program: program.to_owned(), behind_env })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use proptest::prelude::*;

    use super::*;

    fn write(directory: &Path, name: &str, text: &str, mode: u32) -> PathBuf {
        let file = directory.join(name);
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn first_lines_name_their_interpreters() {
        for (line, program, behind_env) in [
            ("#!/bin/sh\nexit", "/bin/sh", None),
            ("#! /usr/bin/perl -w", "/usr/bin/perl", None),
            ("#!/usr/bin/perl perl", "/usr/bin/perl", None),
            ("#!/usr/bin/env python3\n", "/usr/bin/env", Some("python3")),
            ("#!/usr/bin/env -S LANG=C node --inspect\n", "/usr/bin/env", Some("node")),
            ("#!/usr/bin/env", "/usr/bin/env", None),
        ] {
            let expected = Interpreter { program: program.to_owned(), behind_env: behind_env.map(str::to_owned) };
            assert_eq!(interpreter(line.as_bytes()), Some(expected), "{line}");
        }
        for line in ["#!\n", "\x7fELF", ""] {
            assert_eq!(interpreter(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn commands_are_searched_as_a_shell_does() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write(one.path(), "tool", "not to be run", 0o644);
        let tool = write(two.path(), "tool", "\x7fELF", 0o755);
        let path = std::env::join_paths([one.path(), two.path()]).unwrap();
        let found = find(OsStr::new("tool"), Some(&path)).unwrap();
        assert_eq!((found.program, found.script), (tool.clone(), None));
        assert_eq!(find(tool.as_os_str(), None).unwrap().program, tool);
        assert!(matches!(find(OsStr::new("none"), Some(&path)), Err(ProgramError::NotFound { .. })));
        let plain = one.path().join("tool");
        assert!(matches!(find(plain.as_os_str(), None), Err(ProgramError::NotExecutable { .. })));
        assert!(matches!(find(one.path().as_os_str(), None), Err(ProgramError::NotExecutable { .. })));
    }

    #[test]
    fn a_script_runs_what_its_first_line_names() {
        let folder = tempfile::tempdir().unwrap();
        let tool = write(folder.path(), "tool", "\x7fELF", 0o755);
        let script = write(folder.path(), "script", &format!("#!{}\n", tool.display()), 0o755);
        let outer = write(folder.path(), "outer", &format!("#!{} -x\n", script.display()), 0o755);
        let found = find(outer.as_os_str(), None).unwrap();
        assert_eq!((found.program, found.script), (tool, Some(outer)));
        let lost = write(folder.path(), "lost", "#!/no/such/interpreter\n", 0o755);
        let error = find(lost.as_os_str(), None).unwrap_err().to_string();
        assert!(error.contains("lost") && error.contains("/no/such/interpreter"), "{error}");
        let tool_behind = |words: &str| {
            let env = write(folder.path(), "env", "\x7fELF", 0o755);
            let script = write(folder.path(), "behind", &format!("#!{} {words}\n", env.display()), 0o755);
            let found = find(script.as_os_str(), Some(folder.path().as_os_str())).unwrap();
            found.program.file_name().unwrap().to_owned()
        };
        assert_eq!([tool_behind("tool"), tool_behind("-S -u LD_PRELOAD tool")], ["tool", "env"]);
        let circle = folder.path().join("circle");
        write(folder.path(), "circle", &format!("#!{}\n", circle.display()), 0o755);
        assert!(matches!(find(circle.as_os_str(), None), Err(ProgramError::Loop { .. })));
    }

    proptest! {
        #[test]
        fn any_first_line_is_understood_or_passed_over(line in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = interpreter(&line);
            let _ = interpreter(&[b"#!".as_slice(), &line].concat());
        }
    }
}
