/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What system_calls.bpf.c and src/observe/system_calls.rs share.
 */
#ifndef HUGEPILOT_SYSTEM_CALLS_H
#define HUGEPILOT_SYSTEM_CALLS_H

/* Processes that are named. */
#define MOST_PROCESSES 4096

/* The value of a process that counts alone; of any other value its children count, too. */
#define ITSELF 0

#endif
