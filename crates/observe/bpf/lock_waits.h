/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The record that lock_waits.bpf.c and src/observe/waits/lock.rs share: only 8-byte fields, in the machine's byte order. A change here
 * changes the offsets there.
 */
#ifndef HUGEPILOT_LOCK_WAITS_H
#define HUGEPILOT_LOCK_WAITS_H

struct lock_waits {
	/* The address space whose lock is watched; 0 for none. */
	__u64 mm;
	/* Waits of all threads, since this process was chosen. */
	__u64 total_ns;
	/* The longest of them. */
	__u64 longest_ns;
};

#endif
