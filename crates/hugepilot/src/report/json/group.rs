//! A group of processes as JSON.

use heat::group::{Member, Piece, SharedObject};
use heat::units::HUGE_PAGE;
use heat::{Object, SeenMemory};
use pilot::group::GroupSeen;
use serde::Serialize;

use super::{ReportKind, document, summary};

/// The group: each process, and each shared object with its mappings. Totals count shared memory once.
pub fn group(seen: &GroupSeen) -> String {
    let (group, private, shared) = (&seen.group, seen.group.private(), seen.group.shared());
    let totals = object! {
        processes: group.members().len(),
        #[serde(flatten)]
        amount: [private, shared].into_iter().sum::<SeenMemory>(),
        pages_unobserved: group.members().map(|member| member.summary.unobserved.0).sum::<u64>(),
        private,
        shared,
    };
    document(
        ReportKind::Group,
        &object! {
            processes: group.members().map(member).collect::<Vec<_>>(),
            shared: group.hottest_objects().into_iter().map(|(id, object)| shared_object(id, object)).collect::<Vec<_>>(),
            totals,
            left_out: seen.left_out.iter().map(|(pid, reason)| object! { pid, reason }).collect::<Vec<_>>(),
        },
    )
}

fn member(member: &Member) -> impl Serialize {
    object! {
        name: &member.name,
        #[serde(flatten)]
        summary: summary(member.summary),
        private: member.private,
    }
}

fn shared_object(id: &Object, object: &SharedObject) -> impl Serialize {
    let piece = |(number, piece): (&u64, &Piece)| {
        object! {
            offset: number * HUGE_PAGE,
            pages_present: piece.present.len(),
            pages_walked: piece.walked.len(),
            huge_in: piece.huge_in,
            walks_per_second: piece.walks_per_second,
        }
    };
    let mappings = object.mappings.iter().map(|((pid, _), mapping)| {
        object! {
            pid,
            start: mapping.range.start,
            len: mapping.range.len(),
            offset: mapping.offset,
            #[serde(flatten)]
            amount: mapping.amount,
        }
    });
    object! {
        device: id.device_name(),
        inode: id.inode,
        ipc_namespace: id.ipc_namespace,
        name: &object.name,
        size_bytes: object.size(),
        #[serde(flatten)]
        amount: object.amount(),
        regions: object.pieces.iter().map(piece).collect::<Vec<_>>(),
        mappings: mappings.collect::<Vec<_>>(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::pretty;
    use super::*;
    use crate::report::samples::group_seen;

    #[test]
    fn a_group_has_its_fields() {
        insta::assert_snapshot!(pretty(&group(&group_seen())));
    }
}
