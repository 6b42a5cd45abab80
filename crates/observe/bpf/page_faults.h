/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What page_faults.bpf.c and src/observe/faults.rs share: regions are named by their address without its last 21 bits.
 */
#ifndef HUGEPILOT_PAGE_FAULTS_H
#define HUGEPILOT_PAGE_FAULTS_H

/* 2 MiB. */
#define REGION_BITS 21
/* Regions that are counted at the same time: 64 GiB. Those with the latest faults stay. */
#define MOST_REGIONS 32768
/* Pairs of a process that began since and a region that it has touched. */
#define MOST_TOUCHED 65536

#endif
