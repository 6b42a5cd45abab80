/* SPDX-License-Identifier: GPL-2.0-only */
/* What the kernel gives a program of the kind iter/task; the loader relocates it against the running kernel's BTF. */
#ifndef HUGEPILOT_TASK_ITERATOR_H
#define HUGEPILOT_TASK_ITERATOR_H

struct task_struct;
struct bpf_iter_meta;

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} __attribute__((preserve_access_index));

#endif
