//! The owner of a directory, and a group, as a user writes them.
//!
//! Owns: `user:group` and its defaults. Never touches: the accounts.

use std::path::PathBuf;

use kernel::Root;
use kernel::accounts::{self, AccountIds, GROUPS, USERS};

use crate::PoolError;

/// A group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixGroup {
    /// As the user wrote it.
    pub name: String,
    /// Its number.
    pub gid: u32,
}

/// The owner of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The user's number.
    pub uid: u32,
    /// The group's number.
    pub gid: u32,
}

/// The group of that name or number. Errors: there is none of that name.
pub fn group(root: &Root, name: &str) -> Result<UnixGroup, PoolError> {
    let gid = match name.parse() {
        Ok(gid) => gid,
        Err(_) => accounts::group(root, name)?.ok_or_else(|| no_account("group", name, GROUPS, "group"))?,
    };
    Ok(UnixGroup { name: name.to_owned(), gid })
}

/// `alice`, `alice:music`, `:music`, or numbers instead. Without a group it is the user's own, or 0 if the user is a number;
/// without a user it is root.
///
/// Errors: `/etc/passwd` or `/etc/group` cannot be read, or lacks the name.
pub fn owner(root: &Root, text: &str) -> Result<Owner, PoolError> {
    let (user, of_group) = text.split_once(':').map_or((text, None), |(user, of_group)| (user, Some(of_group)));
    let (uid, own) = match (user.parse(), user) {
        (Ok(uid), _) => (uid, 0),
        (_, "") if of_group.is_some() => (0, 0),
        _ => match accounts::user(root, user)? {
            Some(AccountIds { uid, gid }) => (uid, gid),
            None => return Err(no_account("user", user, USERS, "passwd")),
        },
    };
    let gid = of_group.map(|name| group(root, name)).transpose()?.map_or(own, |group| group.gid);
    Ok(Owner { uid, gid })
}

fn no_account(kind: &'static str, name: &str, file: &str, database: &'static str) -> PoolError {
    PoolError::NoAccount { kind, name: name.to_owned(), file: PathBuf::from("/").join(file), database }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn accounts_are_found_by_name_and_number() {
        let tree = tempfile::tempdir().unwrap();
        fs::create_dir(tree.path().join("etc")).unwrap();
        fs::write(tree.path().join(USERS), "root:x:0:0::/root:/bin/sh\nalice:x:1000:1001::/:\nbad\n").unwrap();
        fs::write(tree.path().join(GROUPS), "root:x:0:\nmusic:x:27:alice\n").unwrap();
        let root = Root::at(tree.path());
        assert_eq!(group(&root, "music").unwrap(), UnixGroup { name: "music".into(), gid: 27 });
        assert_eq!(group(&root, "4000").unwrap().gid, 4000);
        for (text, uid, gid) in [
            ("alice", 1000, 1001),
            ("alice:music", 1000, 27),
            (":music", 0, 27),
            ("7", 7, 0),
            ("7:8", 7, 8),
            ("root:8", 0, 8),
        ] {
            assert_eq!(owner(&root, text).unwrap(), Owner { uid, gid }, "{text}");
        }
        let told = owner(&root, "bob").unwrap_err().to_string();
        assert_eq!(told, "no user 'bob' in /etc/passwd: give its number (`getent passwd bob` finds it)");
        for text in ["", "alice:", "alice:bob", "bad", "-1"] {
            assert!(owner(&root, text).is_err(), "{text}");
        }
    }
}
