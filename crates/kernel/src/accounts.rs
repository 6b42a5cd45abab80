//! Users and groups by name and number.
//!
//! Owns: `/etc/passwd` and `/etc/group` (man 5 passwd, man 5 group). Accounts from elsewhere (LDAP) are not found here, and must be given by
//! number. Never touches: the accounts.

use std::collections::BTreeMap;

use crate::{KernelError, Root};

/// The file of users.
pub const USERS: &str = "etc/passwd";
/// The file of groups.
pub const GROUPS: &str = "etc/group";

/// The numbers of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountIds {
    /// The user.
    pub uid: u32,
    /// The user's own group.
    pub gid: u32,
}

/// The user of that name; `None` if the file has no such line.
///
/// Errors: `/etc/passwd` cannot be read.
pub fn user(root: &Root, name: &str) -> Result<Option<AccountIds>, KernelError> {
    Ok(match numbers(root, USERS, name)?[..] {
        [uid, gid] => Some(AccountIds { uid, gid }),
        _ => None,
    })
}

/// The number of the group of that name; `None` if the file has no such line.
///
/// Errors: `/etc/group` cannot be read.
pub fn group(root: &Root, name: &str) -> Result<Option<u32>, KernelError> {
    Ok(numbers(root, GROUPS, name)?.first().copied())
}

/// Names of users by their numbers; the first line of a number counts. Empty where the file cannot be read.
pub fn user_names(root: &Root) -> BTreeMap<u32, String> {
    let text = root.text(USERS).unwrap_or_default();
    let user = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        Some((fields.nth(1)?.parse().ok()?, name.to_owned()))
    };
    text.lines().rev().filter_map(user).collect()
}

/// The numbers in a line `name:x:7:8:..`, at most two; none without such a line.
fn numbers(root: &Root, file: &str, name: &str) -> Result<Vec<u32>, KernelError> {
    let text = root.text(file)?;
    let mut lines = text.lines().map(|line| line.split(':'));
    let found = lines.find_map(|mut fields| (fields.next() == Some(name) && !name.is_empty()).then(|| fields.skip(1)));
    Ok(found.map(|fields| fields.take(2).map_while(|field| field.parse().ok()).collect()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn accounts_are_found_by_name() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        assert!(user(&root, "alice").is_err() && user_names(&root).is_empty());
        fs::create_dir(tree.path().join("etc")).unwrap();
        fs::write(tree.path().join(USERS), "root:x:0:0::/root:/bin/sh\ntoor:x:0:0::/:\nalice:x:1000:1001::/:\nbad\n")
            .unwrap();
        fs::write(tree.path().join(GROUPS), "root:x:0:\nmusic:x:27:alice\n").unwrap();
        assert_eq!(user(&root, "alice").unwrap(), Some(AccountIds { uid: 1000, gid: 1001 }));
        assert_eq!((group(&root, "music").unwrap(), group(&root, "bob").unwrap()), (Some(27), None));
        for name in ["bob", "bad", ""] {
            assert_eq!(user(&root, name).unwrap(), None, "{name}");
        }
        assert_eq!(user_names(&root), BTreeMap::from([(0, "root".to_owned()), (1000, "alice".to_owned())]));
    }
}
