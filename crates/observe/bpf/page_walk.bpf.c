// SPDX-License-Identifier: GPL-2.0-only
/*
 * Copies the page tables of one process, without a lock and without touching them.
 *
 * Owns: walking from the top-level table to the tables of base pages, for 4 and 5 levels. Never touches: anything but
 * its own maps; all kernel memory is read with bpf_probe_read_kernel, which fails softly. No lock is held, so a table
 * may be freed while it is copied: the entry that points to a table of base pages is read again after the copy, and the
 * table is read anew if the entry has changed. Tables above are not checked again, so the result may hold a stale entry.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "page_walk.h"
#include "task_iterator.h"

char LICENSE[] SEC("license") = "GPL";

/* Only the fields used; the loader relocates them against the running kernel's BTF. */
struct mm_struct {
	void *pgd;
} __attribute__((preserve_access_index));

struct task_struct {
	struct mm_struct *mm;
} __attribute__((preserve_access_index));

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	unsigned long vm_flags;
} __attribute__((preserve_access_index));

struct pt_regs {
	unsigned long sp;
} __attribute__((preserve_access_index));

struct bpf_iter__task_vma {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	struct vm_area_struct *vma;
} __attribute__((preserve_access_index));

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct request);
} requests SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct reply);
} replies SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_RECORDS);
	__type(key, __u32);
	__type(value, struct record);
} records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_TABLES);
	__uint(key_size, 4);
	__uint(value_size, TABLE_BYTES);
} tables SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_MAPPINGS);
	__type(key, __u32);
	__type(value, struct mapping);
} mappings SEC(".maps");

#define PRESENT (1ULL << 0)
#define PAGE_SIZE_BIT (1ULL << 7)
/* Without PRESENT: memory is there, but every access faults (mprotect, NUMA balancing). */
#define PROT_NONE (1ULL << 8)
#define BASE_SHIFT 12
#define HUGE_SHIFT 21
#define GIANT_SHIFT 30
#define TOP_FOUR_SHIFT 39
#define TOP_FIVE_SHIFT 48

struct walk {
	struct request *request;
	struct reply *reply;
	__u64 cursor;
	/* The middle table in use covers [middle_start, middle_start + 1 GiB). */
	__u64 middle;
	__u64 middle_start;
};

static __always_inline __u64 entry_at(struct walk *walk, __u64 table, int shift, __u64 *address)
{
	__u64 entry = 0;

	*address = table + ((walk->cursor >> shift) & 511) * 8;
	if (bpf_probe_read_kernel(&entry, sizeof(entry), (void *)*address)) {
		walk->reply->failures++;
		return 0;
	}
	return entry;
}

static __always_inline __u64 table_of(struct walk *walk, __u64 entry)
{
	return walk->request->direct_map + (entry & walk->request->frame_mask);
}

static __always_inline void skip_to_next(struct walk *walk, int shift)
{
	walk->cursor = ((walk->cursor >> shift) + 1) << shift;
}

static __always_inline struct record *new_record(struct walk *walk, __u64 entry, __u32 level, int shift)
{
	__u32 number = walk->reply->records;
	struct record *record = bpf_map_lookup_elem(&records, &number);

	if (!record)
		return 0;
	record->start = (walk->cursor >> shift) << shift;
	record->entry = entry;
	record->read_ns = bpf_ktime_get_ns();
	record->level = level;
	record->table = walk->reply->tables;
	return record;
}

/* Finds the table that covers 1 GiB around the cursor; 0 when there is none and the cursor has moved on. */
static __always_inline int find_middle(struct walk *walk)
{
	__u64 address, entry, table = walk->reply->pgd;

	if (walk->request->levels == 5) {
		entry = entry_at(walk, table, TOP_FIVE_SHIFT, &address);
		if (!(entry & PRESENT)) {
			skip_to_next(walk, TOP_FIVE_SHIFT);
			return 0;
		}
		table = table_of(walk, entry);
	}
	entry = entry_at(walk, table, TOP_FOUR_SHIFT, &address);
	if (!(entry & PRESENT)) {
		skip_to_next(walk, TOP_FOUR_SHIFT);
		return 0;
	}
	entry = entry_at(walk, table_of(walk, entry), GIANT_SHIFT, &address);
	if (!(entry & PRESENT)) {
		skip_to_next(walk, GIANT_SHIFT);
		return 0;
	}
	if (entry & PAGE_SIZE_BIT) {
		if (new_record(walk, entry, LEVEL_GIANT, GIANT_SHIFT))
			walk->reply->records++;
		skip_to_next(walk, GIANT_SHIFT);
		return 0;
	}
	walk->middle = table_of(walk, entry);
	walk->middle_start = (walk->cursor >> GIANT_SHIFT) << GIANT_SHIFT;
	return 1;
}

/* Copies the table of base pages that the entry points to; 1 when the buffer is full. */
static __always_inline int copy_table(struct walk *walk, __u64 entry, __u64 entry_address)
{
	__u32 number = walk->reply->tables;
	void *copy = bpf_map_lookup_elem(&tables, &number);
	struct record *record = new_record(walk, entry, LEVEL_TABLE, HUGE_SHIFT);
	__u64 again = 0;

	if (!copy || !record)
		return 1;
	if (bpf_probe_read_kernel(copy, TABLE_BYTES, (void *)table_of(walk, entry))) {
		walk->reply->failures++;
		skip_to_next(walk, HUGE_SHIFT);
		return 0;
	}
	bpf_probe_read_kernel(&again, sizeof(again), (void *)entry_address);
	if ((again ^ entry) & (walk->request->frame_mask | PRESENT | PAGE_SIZE_BIT))
		return 0; /* freed or collapsed meanwhile: the next step reads this place anew */
	walk->reply->records++;
	walk->reply->tables++;
	skip_to_next(walk, HUGE_SHIFT);
	return 0;
}

/* One step of bpf_loop: 0 continues, 1 stops. */
static long step(__u32 index, void *context)
{
	struct walk *walk = context;
	__u64 entry, address;

	if (walk->cursor >= walk->request->end || walk->reply->records >= MAX_RECORDS)
		return 1;
	if (walk->cursor - walk->middle_start >= 1ULL << GIANT_SHIFT || !walk->middle) {
		walk->middle = 0;
		if (!find_middle(walk))
			return 0;
	}
	entry = entry_at(walk, walk->middle, HUGE_SHIFT, &address);
	if (!(entry & PRESENT) && !((entry & PROT_NONE) && (entry & PAGE_SIZE_BIT))) {
		skip_to_next(walk, HUGE_SHIFT);
		return 0;
	}
	if (entry & PAGE_SIZE_BIT) {
		if (new_record(walk, entry, LEVEL_HUGE, HUGE_SHIFT))
			walk->reply->records++;
		skip_to_next(walk, HUGE_SHIFT);
		return 0;
	}
	return copy_table(walk, entry, address);
}

SEC("iter/task")
int copy_page_tables(struct bpf_iter__task *context)
{
	__u32 zero = 0;
	struct request *request = bpf_map_lookup_elem(&requests, &zero);
	struct reply *reply = bpf_map_lookup_elem(&replies, &zero);
	struct task_struct *task = context->task;
	struct walk walk = {};
	struct pt_regs *registers;
	struct mm_struct *mm;

	if (!task || !request || !reply)
		return 0;
	mm = task->mm;
	reply->mm = (__u64)mm;
	if (!mm)
		return 0;
	reply->pgd = (__u64)BPF_CORE_READ(mm, pgd);
	registers = (struct pt_regs *)bpf_task_pt_regs(task);
	if (registers)
		reply->stack_pointer = BPF_CORE_READ(registers, sp);
	if (request->peek)
		bpf_probe_read_kernel(&reply->peeked, sizeof(reply->peeked), (void *)request->peek);
	walk.request = request;
	walk.reply = reply;
	walk.cursor = request->start;
	bpf_loop(1 << 20, step, &walk, 0);
	reply->next = walk.cursor;
	return 0;
}

/*
 * Lists mappings that start in [start, end), in a map, because output through the iterator's file starts over when it is
 * read in more than one piece.
 */
SEC("iter/task_vma")
int list_mappings(struct bpf_iter__task_vma *context)
{
	__u32 zero = 0, number;
	struct request *request = bpf_map_lookup_elem(&requests, &zero);
	struct reply *reply = bpf_map_lookup_elem(&replies, &zero);
	struct task_struct *task = context->task;
	struct vm_area_struct *vma = context->vma;
	struct mapping *mapping;

	if (!task || !vma || !request || !reply)
		return 0;
	reply->mm = (__u64)task->mm;
	if (vma->vm_start < request->start || vma->vm_start >= request->end)
		return 0;
	number = reply->records;
	mapping = bpf_map_lookup_elem(&mappings, &number);
	if (!mapping)
		return 0;
	mapping->start = vma->vm_start;
	mapping->end = vma->vm_end;
	mapping->flags = vma->vm_flags;
	reply->records++;
	reply->next = vma->vm_end;
	return 0;
}
