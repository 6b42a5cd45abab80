// SPDX-License-Identifier: GPL-2.0-only
/*
 * Counts the page faults of some processes, and of their children, by region of 2 MiB: those that a huge page would save.
 *
 * Owns: the counts. Never touches: the faults. Nothing runs unless the programs are attached; naming processes takes Linux 6.1.
 * Children count without being named, because a server's may live for milliseconds, and a forked one maps shared memory where its
 * parent does. A new process's first fault in a region does not count, because mapping a huge page also takes one; what older
 * processes have touched before is unknown, and all their faults count.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "named_processes.h"
#include "page_faults.h"

char LICENSE[] SEC("license") = "GPL";

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MOST_REGIONS);
	__type(key, __u64);
	__type(value, __u64);
} faults SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MOST_TOUCHED);
	__type(key, __u64);
	__type(value, __u32);
} touched SEC(".maps");

/*
 * Whether a new process has not touched a region before. Process ids have 22 bits, region numbers at most 36. Entries left by an earlier
 * count are recognized by its number, because removing them one by one takes longer than a count.
 */
static __always_inline bool is_first(__u32 process, __u64 region, __u32 number)
{
	__u64 key = region << 24 | process;
	__u32 *found = bpf_map_lookup_elem(&touched, &key);

	if (found && *found == number)
		return false;
	bpf_map_update_elem(&touched, &key, &number, BPF_ANY);
	return true;
}

static __always_inline int count(unsigned long address)
{
	__u64 region = address >> REGION_BITS, one = 1, *found;
	__u32 process = current_process(), number;

	if (!is_named(process)) {
		number = number_of_parent();
		if (number == ITSELF || is_first(process, region, number))
			return 0;
	}
	found = bpf_map_lookup_elem(&faults, &region);
	if (found)
		__sync_fetch_and_add(found, 1);
	else
		bpf_map_update_elem(&faults, &region, &one, BPF_ANY);
	return 0;
}

SEC("raw_tp/page_fault_user")
int BPF_PROG(fault_of_program, unsigned long address)
{
	return count(address);
}

/* The kernel, accessing the program's memory on its behalf. */
SEC("raw_tp/page_fault_kernel")
int BPF_PROG(fault_of_kernel, unsigned long address)
{
	return count(address);
}
