//! Files that are written atomically.
//!
//! Owns: writing and removing them. Never touches: their contents.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use kernel::Root;

use crate::PoolError;

/// The change of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The file's absolute path within the root.
    pub path: String,
    /// Its contents; `None` if it does not exist.
    pub before: Option<String>,
    /// Its new contents; `None` to remove it.
    pub after: Option<String>,
}

impl Edit {
    /// Writes or removes the file, and creates its directory. A replaced file keeps its permissions, and a symbolic link stays a link.
    ///
    /// Errors: the directory cannot be created, or the file cannot be written, replaced or removed (`EACCES`, `EROFS`).
    pub fn apply(&self, root: &Root) -> Result<(), PoolError> {
        let path = root.path(&self.path);
        match &self.after {
            Some(text) => write_whole(&path, text).map_err(|cause| PoolError::file("write", &path, cause)),
            None => fs::remove_file(&path).map_err(|cause| PoolError::file("remove", &path, cause)),
        }
    }
}

fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    fs::create_dir_all(directory)?;
    let unfinished = directory.join(format!(".{}.hugepilot-new", name.to_string_lossy()));
    let mode = fs::metadata(&path).map_or(0o644, |found| found.permissions().mode() & 0o7777);
    let written = write_new(&unfinished, text, mode).and_then(|()| fs::rename(&unfinished, &path));
    if written.is_err() {
        // The failure is reported; the temporary file need not stay.
        let _ = fs::remove_file(&unfinished);
    }
    written
}

fn write_new(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut file = File::options().write(true).create(true).truncate(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes())?;
    // Regardless of the umask.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(path: &str, after: Option<&str>) -> Edit {
        Edit { path: path.to_owned(), before: None, after: after.map(str::to_owned) }
    }

    #[test]
    fn files_come_change_and_go() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        let file = tree.path().join("etc/a.d/b.conf");
        edit("/etc/a.d/b.conf", Some("one\n")).apply(&root).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "one\n");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o644);
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        edit("/etc/a.d/b.conf", Some("two\n")).apply(&root).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1, "nothing unfinished is left");
        edit("/etc/a.d/b.conf", None).apply(&root).unwrap();
        assert!(!file.exists());
        let gone = edit("/etc/a.d/b.conf", None).apply(&root).unwrap_err().to_string();
        assert!(gone.starts_with("cannot remove ") && gone.contains("b.conf"), "{gone}");
    }

    #[test]
    fn a_link_stays_one() {
        let tree = tempfile::tempdir().unwrap();
        fs::write(tree.path().join("real"), "one\n").unwrap();
        std::os::unix::fs::symlink("real", tree.path().join("link")).unwrap();
        edit("/link", Some("two\n")).apply(&Root::at(tree.path())).unwrap();
        assert!(tree.path().join("link").is_symlink());
        assert_eq!(fs::read_to_string(tree.path().join("real")).unwrap(), "two\n");
    }

    #[test]
    fn what_cannot_be_written_leaves_nothing_behind() {
        let tree = tempfile::tempdir().unwrap();
        fs::create_dir_all(tree.path().join("etc/a")).unwrap();
        let told = edit("/etc/a", Some("x")).apply(&Root::at(tree.path())).unwrap_err().to_string();
        assert!(told.starts_with("cannot write "), "{told}");
        assert_eq!(fs::read_dir(tree.path().join("etc")).unwrap().count(), 1);
    }
}
