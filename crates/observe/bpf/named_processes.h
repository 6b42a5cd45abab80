/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which processes count: those that src/named.rs names, and their children where it asks for them.
 *
 * Owns: the maps of names. Never touches: what is counted. User space names a process by letting name_process visit it: only here are
 * the ids of the machine's first pid namespace known, by which a process is found later; hugepilot itself may run in another one.
 */
#ifndef HUGEPILOT_NAMED_PROCESSES_H
#define HUGEPILOT_NAMED_PROCESSES_H

#include "task_iterator.h"

#define MOST_PROCESSES 4096

/* The number of a process that counts alone; any other number names a count in which its children count, too. */
#define ITSELF 0

/* Only the fields used; the loader relocates them against the running kernel's BTF. */
struct task_struct {
	int tgid;
	struct task_struct *real_parent;
} __attribute__((preserve_access_index));

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MOST_PROCESSES);
	__type(key, __u32);
	__type(value, __u32);
} processes SEC(".maps");

/* The number of the process that is named next. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} next_number SEC(".maps");

SEC("iter/task")
int name_process(struct bpf_iter__task *context)
{
	__u32 zero = 0, *number = bpf_map_lookup_elem(&next_number, &zero), process;
	struct task_struct *task = context->task;

	if (!task || !number)
		return 0;
	process = task->tgid;
	bpf_map_update_elem(&processes, &process, number, BPF_ANY);
	return 0;
}

static __always_inline __u32 current_process(void)
{
	return bpf_get_current_pid_tgid() >> 32;
}

static __always_inline bool is_named(__u32 process)
{
	return bpf_map_lookup_elem(&processes, &process);
}

/* The number by which children of the current process's parent count; ITSELF if they do not. */
static __always_inline __u32 number_of_parent(void)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	__u32 parent = BPF_CORE_READ(task, real_parent, tgid);
	__u32 *number = bpf_map_lookup_elem(&processes, &parent);

	return number ? *number : ITSELF;
}

#endif
