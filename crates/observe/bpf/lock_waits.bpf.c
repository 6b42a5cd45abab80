// SPDX-License-Identifier: GPL-2.0-only
/*
 * Adds up how long the threads of one process wait for the lock of its memory (mmap_lock).
 *
 * Owns: the sums. Never touches: the lock; it is only notified. The kernel reports only contention (since 5.19), so nothing runs
 * while no thread waits. Writers that spin before they sleep are not reported.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "lock_waits.h"
#include "task_iterator.h"

char LICENSE[] SEC("license") = "GPL";

/* Only the fields used; the loader relocates them against the running kernel's BTF. */
struct rw_semaphore {
	long count;
} __attribute__((preserve_access_index));

struct mm_struct {
	struct rw_semaphore mmap_lock;
} __attribute__((preserve_access_index));

struct task_struct {
	struct mm_struct *mm;
} __attribute__((preserve_access_index));

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lock_waits);
} waits SEC(".maps");

/* When each waiting thread began to wait. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, __u64);
} begun SEC(".maps");

/* The process whose threads count, identified by one of them. */
SEC("iter/task")
int choose_process(struct bpf_iter__task *context)
{
	__u32 zero = 0;
	struct lock_waits *sums = bpf_map_lookup_elem(&waits, &zero);
	struct task_struct *task = context->task;

	if (task && sums)
		sums->mm = (__u64)task->mm;
	return 0;
}

SEC("tp_btf/contention_begin")
int BPF_PROG(wait_begins, void *lock, unsigned int flags)
{
	__u32 zero = 0;
	struct lock_waits *sums = bpf_map_lookup_elem(&waits, &zero);
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 thread = bpf_get_current_pid_tgid(), now;

	/* Others may wait for this lock, too: readers of /proc/PID/maps, and hugepilot. */
	if (!sums || !sums->mm || (__u64)task->mm != sums->mm)
		return 0;
	if ((__u64)lock != sums->mm + bpf_core_field_offset(struct mm_struct, mmap_lock))
		return 0;
	now = bpf_ktime_get_ns();
	bpf_map_update_elem(&begun, &thread, &now, BPF_ANY);
	return 0;
}

SEC("tp_btf/contention_end")
int BPF_PROG(wait_ends, void *lock, int result)
{
	__u32 zero = 0;
	struct lock_waits *sums = bpf_map_lookup_elem(&waits, &zero);
	__u64 thread = bpf_get_current_pid_tgid(), *since, waited;

	if (!sums || !sums->mm || (__u64)lock != sums->mm + bpf_core_field_offset(struct mm_struct, mmap_lock))
		return 0;
	since = bpf_map_lookup_elem(&begun, &thread);
	if (!since)
		return 0;
	waited = bpf_ktime_get_ns() - *since;
	bpf_map_delete_elem(&begun, &thread);
	__sync_fetch_and_add(&sums->total_ns, waited);
	/* If two end at the same moment, one may be lost. */
	if (waited > sums->longest_ns)
		sums->longest_ns = waited;
	return 0;
}
