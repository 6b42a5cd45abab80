/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The records that page_walk.bpf.c and src/observe/page_walk/reader.rs share. Layout is fixed: only 4- and 8-byte
 * fields, no padding, in the machine's byte order. A change here changes the offsets there.
 */
#ifndef HUGEPILOT_PAGE_WALK_H
#define HUGEPILOT_PAGE_WALK_H

/* Page-table pages copied in one run: 1 MiB, about 0.1 ms, during which some kernels do not preempt the CPU that reads. */
#define MAX_TABLES 256
#define MAX_RECORDS 8192
#define TABLE_BYTES 4096

/* What one run should read: addresses in [start, end). */
struct request {
	__u64 start;
	__u64 end;
	/* Virtual address at which the kernel maps physical address 0. */
	__u64 direct_map;
	/* Bits of a page-table entry that hold a physical address. */
	__u64 frame_mask;
	/* A kernel address to read 8 bytes from; 0 for none. */
	__u64 peek;
	/* 4 or 5. */
	__u32 levels;
	__u32 reserved;
};

/* The result. */
struct reply {
	/* Everything below was read or listed; end or more when the whole request was. */
	__u64 next;
	/* The address space that was read; another value next time means that the process has called exec. */
	__u64 mm;
	/* Virtual address of the top-level table. */
	__u64 pgd;
	/* What stood at request.peek. */
	__u64 peeked;
	/* The thread's stack pointer when it last entered the kernel. */
	__u64 stack_pointer;
	__u32 records;
	__u32 tables;
	/* Entries that could not be read: the direct map's base is wrong, or a table was freed meanwhile. */
	__u32 failures;
	__u32 reserved;
};

#define LEVEL_TABLE 1 /* a table of 512 base pages, copied to tables[table] */
#define LEVEL_HUGE 2  /* one page of 2 MiB */
#define LEVEL_GIANT 3 /* one page of 1 GiB */

/* One page-table page, or one page larger than a base page. */
struct record {
	__u64 start;
	__u64 entry;
	/* CLOCK_MONOTONIC when it was read. */
	__u64 read_ns;
	__u32 level;
	__u32 table;
};

/* Mappings listed in one run. */
#define MAX_MAPPINGS 16384

/* One mapping of the process, with the kernel's vm_flags. */
struct mapping {
	__u64 start;
	__u64 end;
	__u64 flags;
};

#endif
