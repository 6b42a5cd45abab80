// SPDX-License-Identifier: GPL-2.0-only
/*
 * Counts how often one program takes the lock of its own address space (mmap, munmap, brk, mprotect, madvise, ..): these
 * calls wait while its accessed bits are cleared through clear_refs.
 *
 * Owns: one counter. Never touches: anything but its own map. It is attached only while a sample is taken.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "GPL";

struct mm_struct;

/* Only the field used; the loader relocates it against the running kernel's BTF. */
struct task_struct {
	struct mm_struct *mm;
} __attribute__((preserve_access_index));

/* observe/page_walk/mmap_calls.rs */
struct watched {
	/* The kernel's address of the program's mm_struct; 0 for none. */
	__u64 mm;
	__u64 calls;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct watched);
} watched SEC(".maps");

/*
 * The address space is the first argument on every kernel; what follows it differs. Only the program's own calls count:
 * others that read its mappings, such as ps, wait at their own expense.
 */
SEC("raw_tp/mmap_lock_start_locking")
int count_mmap_calls(struct bpf_raw_tracepoint_args *context)
{
	__u32 zero = 0;
	struct watched *watch = bpf_map_lookup_elem(&watched, &zero);
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();

	if (!watch || context->args[0] != watch->mm)
		return 0;
	if ((__u64)BPF_CORE_READ(task, mm) == watch->mm)
		__sync_fetch_and_add(&watch->calls, 1);
	return 0;
}
