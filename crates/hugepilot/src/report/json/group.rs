//! A group of processes as JSON.

use heat::group::{Member, Piece, SharedMapping, SharedObject};
use heat::units::{Address, Bytes, HUGE_PAGE};
use heat::{Object, SeenMemory};
use pilot::group::GroupSeen;
use serde::Serialize;

use super::{SummaryFields, VERSION, line, summary_fields};

#[derive(Serialize)]
struct GroupDocument<'a> {
    version: u32,
    processes: Vec<MemberFields<'a>>,
    shared: Vec<ObjectFields<'a>>,
    totals: TotalFields,
    left_out: Vec<LeftOutFields<'a>>,
}

#[derive(Serialize)]
struct MemberFields<'a> {
    name: &'a str,
    #[serde(flatten)]
    summary: SummaryFields,
    private: AmountFields,
}

#[derive(Serialize)]
struct AmountFields {
    pages_present: u64,
    pages_walked: u64,
    walks_per_second: f64,
    huge_bytes: Bytes,
}

#[derive(Serialize)]
struct ObjectFields<'a> {
    device: String,
    inode: u64,
    ipc_namespace: Option<u64>,
    name: &'a str,
    size_bytes: Bytes,
    #[serde(flatten)]
    amount: AmountFields,
    regions: Vec<PieceFields>,
    mappings: Vec<MappingFields>,
}

#[derive(Serialize)]
struct PieceFields {
    offset: u64,
    pages_present: usize,
    pages_walked: usize,
    huge_in: u32,
    walks_per_second: f64,
}

#[derive(Serialize)]
struct MappingFields {
    pid: u32,
    start: Address,
    len: Bytes,
    offset: u64,
    #[serde(flatten)]
    amount: AmountFields,
}

/// Shared memory is counted once.
#[derive(Serialize)]
struct TotalFields {
    processes: usize,
    #[serde(flatten)]
    amount: AmountFields,
    pages_unobserved: u64,
    private: AmountFields,
    shared: AmountFields,
}

#[derive(Serialize)]
struct LeftOutFields<'a> {
    pid: u32,
    reason: &'a str,
}

/// The group: each process, each shared object with its mappings.
pub fn group(seen: &GroupSeen) -> String {
    let (group, private, shared) = (&seen.group, seen.group.private(), seen.group.shared());
    line(&GroupDocument {
        version: VERSION,
        processes: group.members().map(member_fields).collect(),
        shared: group.hottest_objects().into_iter().map(|(id, object)| object_fields(id, object)).collect(),
        totals: TotalFields {
            processes: group.members().len(),
            amount: amount_fields([private, shared].into_iter().sum()),
            pages_unobserved: group.members().map(|member| member.summary.unobserved.0).sum(),
            private: amount_fields(private),
            shared: amount_fields(shared),
        },
        left_out: seen.left_out.iter().map(|(pid, reason)| LeftOutFields { pid: *pid, reason }).collect(),
    })
}

fn member_fields(member: &Member) -> MemberFields<'_> {
    let (summary, private) = (summary_fields(&member.summary), amount_fields(member.private));
    MemberFields { name: &member.name, summary, private }
}

fn amount_fields(amount: SeenMemory) -> AmountFields {
    AmountFields {
        pages_present: amount.present.0,
        pages_walked: amount.walked.0,
        walks_per_second: amount.walks_per_second,
        huge_bytes: amount.huge,
    }
}

fn object_fields<'a>(id: &Object, object: &'a SharedObject) -> ObjectFields<'a> {
    ObjectFields {
        device: id.device_name(),
        inode: id.inode,
        ipc_namespace: id.ipc_namespace,
        name: &object.name,
        size_bytes: object.size(),
        amount: amount_fields(object.amount()),
        regions: object.pieces.iter().map(piece_fields).collect(),
        mappings: object.mappings.iter().map(|(&(pid, _), mapping)| mapping_fields(pid, mapping)).collect(),
    }
}

fn piece_fields((&number, piece): (&u64, &Piece)) -> PieceFields {
    PieceFields {
        offset: number * HUGE_PAGE,
        pages_present: piece.present.len(),
        pages_walked: piece.walked.len(),
        huge_in: piece.huge_in,
        walks_per_second: piece.walks_per_second,
    }
}

fn mapping_fields(pid: u32, mapping: &SharedMapping) -> MappingFields {
    let (start, len) = (mapping.range.start, mapping.range.len());
    MappingFields { pid, start, len, offset: mapping.offset, amount: amount_fields(mapping.amount) }
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
