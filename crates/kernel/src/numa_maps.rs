//! The memory policy of each mapping of a process and the nodes that hold its pages, from `/proc/PID/numa_maps`.
//!
//! Owns: the format of that file (Documentation/filesystems/proc.rst, `mpol_to_str` in mm/mempolicy.c). Never touches: a policy.
//!
//! A mapping without its own policy shows that of the process's first thread (`numactl` sets it). *Cost*: the kernel counts every page, some 10
//! ms/GiB of base pages.

use heat::units::{Address, Bytes, Pages};

use crate::cpu::parse_list;
use crate::lines::parse_lines;
use crate::nodes::{MOST_NODES, Node};
use crate::{KernelError, Malformed, Root, maps};

/// The bound on the file: as many lines as `maps`, each up to twice as long on a machine with many nodes.
pub const LIMIT: Bytes = Bytes(128 << 20);

/// The nodes from which the kernel takes pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NumaPolicy {
    /// The node of the processor that touches a page first; the system's behavior without any policy.
    Default,
    /// The same, set explicitly.
    Local,
    /// This node, then others.
    Prefer(Vec<Node>),
    /// Any of these nodes, then others.
    PreferMany(Vec<Node>),
    /// Only these nodes.
    Bind(Vec<Node>),
    /// These nodes in turn.
    Interleave(Vec<Node>),
    /// These nodes in turn, some of them more often.
    WeightedInterleave(Vec<Node>),
    /// A policy of later kernels, or one whose nodes were truncated.
    Unknown,
}

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaLine {
    /// Where it starts, as in `/proc/PID/maps`.
    pub start: Address,
    /// Its policy.
    pub policy: NumaPolicy,
    /// The nodes that hold its pages, with their numbers; huge pages of a pool count as one each.
    pub pages: Vec<(Node, Pages)>,
}

/// The policies by their kernel names. If one name begins with another, the longer comes first.
type Policies = [(&'static str, fn(Vec<Node>) -> NumaPolicy); 7];
const POLICIES: Policies = [
    ("default", |_| NumaPolicy::Default),
    ("local", |_| NumaPolicy::Local),
    ("prefer (many)", NumaPolicy::PreferMany),
    ("prefer", NumaPolicy::Prefer),
    ("bind", NumaPolicy::Bind),
    ("interleave", NumaPolicy::Interleave),
    ("weighted interleave", NumaPolicy::WeightedInterleave),
];

impl NumaPolicy {
    /// Whether it deliberately spreads pages over several nodes, which a huge page undoes. An unknown policy is assumed to.
    pub fn spreads_pages(&self) -> bool {
        match self {
            Self::Default | Self::Local | Self::Prefer(_) => false,
            Self::PreferMany(nodes) | Self::Bind(nodes) => nodes.len() > 1,
            Self::Interleave(nodes) | Self::WeightedInterleave(nodes) => nodes.len() > 1,
            Self::Unknown => true,
        }
    }

    /// Parses what follows the address: a name, perhaps flags (`=static|balancing`), perhaps nodes (`:0-3`).
    fn parse(text: &str) -> Self {
        let parse = || {
            let (rest, make) = POLICIES.iter().find_map(|(name, make)| Some((text.strip_prefix(name)?, make)))?;
            let words = rest.split(' ').next()?;
            match words.split_once(':') {
                Some((flags, nodes)) if is_flags(flags) => Some(make(parse_list(nodes, MOST_NODES)?)),
                None if is_flags(words) => Some(make(Vec::new())),
                _ => None,
            }
        };
        parse().unwrap_or(Self::Unknown)
    }
}

/// Nothing, or `=` followed by something.
fn is_flags(text: &str) -> bool {
    text.is_empty() || text.starts_with('=') && text.len() > 1
}

/// The mappings of one process in ascending order; none for a kernel thread or a zombie.
///
/// Errors: as [`maps::read`].
pub fn read(root: &Root, pid: u32) -> Result<Vec<NumaLine>, KernelError> {
    maps::read_lines(root, &format!("proc/{pid}/numa_maps"), LIMIT, EXPECTED, parse_line)
}

const EXPECTED: &str = "a mapping such as '7f00 default anon=3 N0=3'";

/// Parses the text of a `numa_maps` file.
///
/// Errors: a line does not begin with a hexadecimal address, or one of its counts is not like `N1=512`.
pub fn parse(text: &str) -> Result<Vec<NumaLine>, Malformed> {
    parse_lines(text, EXPECTED, parse_line)
}

fn parse_line(line: &str) -> Option<NumaLine> {
    let (start, rest) = line.split_once(' ')?;
    let start = Some(start).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    // Blanks in a file's name are printed as `\040`, so a word that begins with N and a digit belongs to a node.
    let counts =
        rest.split(' ').filter(|word| word.starts_with('N') && word[1..].starts_with(|c: char| c.is_ascii_digit()));
    Some(NumaLine {
        start: Address(u64::from_str_radix(start, 16).ok()?),
        policy: NumaPolicy::parse(rest),
        pages: counts.map(parse_count).collect::<Option<_>>()?,
    })
}

/// Parses `N1=512`.
fn parse_count(word: &str) -> Option<(Node, Pages)> {
    let (node, pages) = word.strip_prefix('N')?.split_once('=')?;
    let node = node.parse().ok().filter(|&node| node < MOST_NODES)?;
    Some((node, Pages(pages.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn policy(text: &str) -> NumaPolicy {
        parse(&format!("7f1a38000000 {text}\n")).unwrap().remove(0).policy
    }

    #[test]
    fn every_policy_is_understood() {
        assert_eq!(policy("default anon=3 N0=3"), NumaPolicy::Default);
        assert_eq!(policy("local"), NumaPolicy::Local);
        assert_eq!(policy("prefer:1 anon=1"), NumaPolicy::Prefer(vec![1]));
        assert_eq!(policy("prefer (many):0-1 anon=1"), NumaPolicy::PreferMany(vec![0, 1]));
        assert_eq!(policy("bind:1 heap anon=1"), NumaPolicy::Bind(vec![1]));
        assert_eq!(policy("interleave:0-1,4 file=/a\\040b"), NumaPolicy::Interleave(vec![0, 1, 4]));
        assert_eq!(policy("weighted interleave:0,2"), NumaPolicy::WeightedInterleave(vec![0, 2]));
    }

    #[test]
    fn flags_of_a_policy_change_nothing() {
        assert_eq!(policy("interleave=static:0-1"), NumaPolicy::Interleave(vec![0, 1]));
        assert_eq!(policy("bind=relative|balancing:3 stack"), NumaPolicy::Bind(vec![3]));
        assert_eq!(policy("prefer=balancing huge"), NumaPolicy::Prefer(vec![]));
    }

    #[test]
    fn what_later_kernels_may_say_is_unknown() {
        for text in ["striped:0-1 anon=3", "bind:0,2,", "bind:0-1024", "interleaved:0", "bind:", "bind=:0", ""] {
            assert_eq!(policy(text), NumaPolicy::Unknown, "{text}");
        }
    }

    #[test]
    fn only_policies_of_several_nodes_spread_pages() {
        for text in ["interleave:0-1", "weighted interleave:0,5", "bind=static:0-1", "prefer (many):1-2", "striped"] {
            assert!(policy(text).spreads_pages(), "{text}");
        }
        for text in
            ["default", "local", "prefer:1", "bind:1", "interleave:0", "prefer (many):0", "weighted interleave:1"]
        {
            assert!(!policy(text).spreads_pages(), "{text}");
        }
    }

    #[test]
    fn pages_are_told_node_by_node() {
        let text = "55ea466b7000 default file=/opt/N9=9/N1 mapped=2 N0=2 kernelpagesize_kB=4\n\
                    7f1a38000000 interleave:0-1 anon=9 dirty=9 active=0 N0=5 N1=4 kernelpagesize_kB=4\n\
                    7f1a40000000 default\n";
        let lines = parse(text).unwrap();
        let pages: Vec<_> = lines.iter().map(|line| line.pages.as_slice()).collect();
        let expected: [&[_]; 3] = [&[(0, Pages(2))], &[(0, Pages(5)), (1, Pages(4))], &[]];
        assert_eq!((pages, lines[1].start), (expected.into(), Address(0x7f1a38000000)));
    }

    #[test]
    fn a_malformed_line_is_named() {
        let bad = [
            "",
            "7f00",
            "7g00 default",
            "+7f00 default",
            "7f00 default N1=",
            "7f00 default N1024=1",
            "7f00 default N1",
        ];
        for line in bad.into_iter().chain(["7f00 default N0=-1", "11112222333344445 default", "7f00 default N0"]) {
            let error = parse(&format!("1000 default\n{line}\n1000 default\n")).expect_err(line);
            assert_eq!((error.line, error.found.as_str()), (2, line));
        }
    }

    #[test]
    fn our_own_mappings_are_read() {
        let root = Root::host();
        if !root.exists("proc/self/numa_maps").unwrap() {
            return eprintln!("skipped: this kernel knows no memory nodes");
        }
        let lines = read(&root, std::process::id()).unwrap();
        let most = lines.iter().map(|line| line.pages.iter().map(|(_, pages)| pages.0).sum::<u64>()).max();
        assert!(most > Some(0));
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "([0-9a-f]{1,17} (bind|prefer|x)[=: ].{0,12}( N[0-9]=[0-9]{1,9})?\n|.{0,40}\n){0,8}") {
            if let Ok(lines) = parse(&text) {
                prop_assert!(lines.len() <= text.lines().count());
            }
        }
    }
}
