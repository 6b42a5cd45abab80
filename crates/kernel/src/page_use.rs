//! What a page frame is used for, according to `/proc/kpageflags` and `/proc/kpagecount`.
//!
//! Owns: the names of the flags (include/uapi/linux/kernel-page-flags.h) and what follows from them. Never touches: the files.

use heat::memory_use::MemoryUse;

/// The flags that hugepilot uses, by the kernel's names without `KPF_`.
pub mod flag {
    /// Found in use once, at the last scan.
    pub const REFERENCED: u64 = 1 << 2;
    /// Written, and not yet written back.
    pub const DIRTY: u64 = 1 << 4;
    /// On a list of pages by recent use.
    pub const LRU: u64 = 1 << 5;
    /// On the list of active pages.
    pub const ACTIVE: u64 = 1 << 6;
    /// The kernel's small objects.
    pub const SLAB: u64 = 1 << 7;
    /// Being written back.
    pub const WRITEBACK: u64 = 1 << 8;
    /// Free.
    pub const BUDDY: u64 = 1 << 10;
    /// In some process's address space.
    pub const MMAP: u64 = 1 << 11;
    /// Belongs to no file.
    pub const ANON: u64 = 1 << 12;
    /// Can be reclaimed only by swapping.
    pub const SWAPBACKED: u64 = 1 << 14;
    /// The first of several frames that the kernel manages together.
    pub const COMPOUND_HEAD: u64 = 1 << 15;
    /// One of them other than the first.
    pub const COMPOUND_TAIL: u64 = 1 << 16;
    /// In a pool of huge pages.
    pub const HUGE: u64 = 1 << 17;
    /// Not reclaimable: locked, or in ramfs.
    pub const UNEVICTABLE: u64 = 1 << 18;
    /// Defective memory.
    pub const HWPOISON: u64 = 1 << 19;
    /// No memory there.
    pub const NOPAGE: u64 = 1 << 20;
    /// Merged by KSM.
    pub const KSM: u64 = 1 << 21;
    /// Part of a transparent huge page.
    pub const THP: u64 = 1 << 22;
    /// Logically offline.
    pub const OFFLINE: u64 = 1 << 23;
    /// The zero page.
    pub const ZERO_PAGE: u64 = 1 << 24;
    /// Marked as idle, and not used since.
    pub const IDLE: u64 = 1 << 25;
    /// A page table.
    pub const PGTABLE: u64 = 1 << 26;
    /// Locked by a program.
    pub const MLOCKED: u64 = 1 << 33;
}

/// What a frame is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameUse {
    /// Nothing: it is free.
    Free,
    /// Something that the kernel can reclaim.
    Of(MemoryUse, Age),
    /// Files, shared or anonymous memory that is locked, or not reclaimable for other reasons.
    Unevictable,
    /// A pool of huge pages.
    Hugetlb,
    /// The kernel's small objects.
    Slab,
    /// Page tables.
    PageTables,
    /// Other memory of the kernel or of drivers.
    Kernel,
    /// No memory.
    Absent,
}

/// How recently memory was used, as far as the kernel has noticed; processes' accesses show only when it scans their page tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Age {
    /// In use: on the list of active pages (with multiple generations: in the youngest two).
    Active,
    /// Used once since it was last scanned.
    Referenced,
    /// Neither.
    Old,
    /// Marked as idle, where the kernel supports that, and not used since.
    Idle,
}

impl Age {
    /// All ages, youngest first.
    pub const ALL: [Self; 4] = [Self::Active, Self::Referenced, Self::Old, Self::Idle];

    /// Its name in JSON and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Referenced => "referenced",
            Self::Old => "old",
            Self::Idle => "idle",
        }
    }

    fn of(flags: u64) -> Self {
        match () {
            () if flags & flag::IDLE != 0 => Self::Idle,
            () if flags & flag::ACTIVE != 0 => Self::Active,
            () if flags & flag::REFERENCED != 0 => Self::Referenced,
            () => Self::Old,
        }
    }
}

/// What a frame is used for. `mapped` is how often it is mapped. Only mappings tell which files are code: mapped files count as
/// [`MemoryUse::MappedFiles`] here.
pub fn classify(flags: u64, mapped: u64) -> FrameUse {
    let has = |wanted: u64| flags & wanted != 0;
    match () {
        () if has(flag::NOPAGE | flag::HWPOISON | flag::OFFLINE) => FrameUse::Absent,
        () if has(flag::BUDDY) => FrameUse::Free,
        () if has(flag::HUGE) => FrameUse::Hugetlb,
        () if has(flag::PGTABLE) => FrameUse::PageTables,
        () if has(flag::SLAB) => FrameUse::Slab,
        () if has(flag::UNEVICTABLE | flag::MLOCKED) => FrameUse::Unevictable,
        () if !has(flag::LRU) || has(flag::ZERO_PAGE) => FrameUse::Kernel,
        () if has(flag::ANON) => FrameUse::Of(MemoryUse::Anonymous, Age::of(flags)),
        () if has(flag::SWAPBACKED) => FrameUse::Of(MemoryUse::Shared, Age::of(flags)),
        () if mapped > 0 || has(flag::MMAP) => FrameUse::Of(MemoryUse::MappedFiles, Age::of(flags)),
        () => FrameUse::Of(MemoryUse::UnmappedCache, Age::of(flags)),
    }
}

/// Whether it can be reclaimed at once: nothing has to be written back.
pub fn is_clean(flags: u64) -> bool {
    flags & (flag::DIRTY | flag::WRITEBACK) == 0
}

/// Copies the head's flags to the other frames of each compound page: before Linux 6.10 most flags are only on the head. The first frame must not be
/// inside a compound page.
pub fn spread_heads(flags: &mut [u64]) {
    /// The head's flags that apply to all.
    const SPREAD: u64 = flag::LRU
        | flag::ACTIVE
        | flag::REFERENCED
        | flag::DIRTY
        | flag::WRITEBACK
        | flag::ANON
        | flag::SWAPBACKED
        | flag::UNEVICTABLE
        | flag::MLOCKED
        | flag::IDLE
        | flag::HUGE
        | flag::SLAB;
    let mut head = 0;
    for flags in flags {
        match *flags {
            own if own & flag::COMPOUND_TAIL != 0 => *flags |= head & SPREAD,
            own => head = own,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(class: MemoryUse) -> FrameUse {
        FrameUse::Of(class, Age::Old)
    }

    #[test]
    fn frames_are_told_apart() {
        let lru = flag::LRU;
        assert_eq!(classify(lru, 0), of(MemoryUse::UnmappedCache));
        assert_eq!(classify(lru, 3), of(MemoryUse::MappedFiles));
        assert_eq!(classify(lru | flag::MMAP, 0), of(MemoryUse::MappedFiles));
        assert_eq!(classify(lru | flag::ANON | flag::SWAPBACKED | flag::MMAP, 1), of(MemoryUse::Anonymous));
        assert_eq!(classify(lru | flag::ANON, 1), of(MemoryUse::Anonymous), "lazily freed");
        assert_eq!(classify(lru | flag::SWAPBACKED, 0), of(MemoryUse::Shared));
        assert_eq!(classify(lru | flag::SWAPBACKED | flag::MMAP, 2), of(MemoryUse::Shared));
    }

    #[test]
    fn what_cannot_be_taken_is_kept_apart() {
        assert_eq!(classify(flag::BUDDY, 0), FrameUse::Free);
        assert_eq!(classify(flag::SLAB, 0), FrameUse::Slab);
        assert_eq!(classify(flag::HUGE | flag::COMPOUND_HEAD, 1), FrameUse::Hugetlb);
        assert_eq!(classify(flag::PGTABLE, 0), FrameUse::PageTables);
        assert_eq!(classify(flag::LRU | flag::UNEVICTABLE | flag::ANON, 1), FrameUse::Unevictable);
        assert_eq!(classify(flag::LRU | flag::MLOCKED, 1), FrameUse::Unevictable);
        assert_eq!(classify(0, 0), FrameUse::Kernel);
        assert_eq!(classify(flag::ZERO_PAGE | flag::LRU, 0), FrameUse::Kernel);
        assert_eq!(classify(flag::NOPAGE, 0), FrameUse::Absent);
    }

    #[test]
    fn ages_follow_from_what_was_noticed() {
        let age = |flags| match classify(flag::LRU | flags, 0) {
            FrameUse::Of(_, age) => age,
            other => panic!("{other:?}"),
        };
        assert_eq!([age(flag::ACTIVE), age(flag::ACTIVE | flag::REFERENCED)], [Age::Active; 2]);
        assert_eq!([age(flag::REFERENCED), age(0), age(flag::IDLE)], [Age::Referenced, Age::Old, Age::Idle]);
        assert!(is_clean(flag::LRU) && !is_clean(flag::DIRTY) && !is_clean(flag::WRITEBACK));
    }

    #[test]
    fn frames_kept_together_are_used_for_the_same() {
        let (head, tail) = (flag::COMPOUND_HEAD | flag::LRU | flag::ANON | flag::SWAPBACKED, flag::COMPOUND_TAIL);
        let mut flags = [head, tail | flag::THP, tail, flag::LRU, tail];
        spread_heads(&mut flags);
        let classes = flags.map(|flags| classify(flags, 0));
        let (anonymous, cache) = (of(MemoryUse::Anonymous), of(MemoryUse::UnmappedCache));
        assert_eq!(classes, [anonymous, anonymous, anonymous, cache, cache]);
    }

    proptest! {
        #[test]
        fn any_flags_have_one_use_and_only_what_can_be_taken_has_an_age(flags: u64, mapped in 0..3u64) {
            if let FrameUse::Of(class, _) = classify(flags, mapped) {
                prop_assert_eq!(flags & (flag::UNEVICTABLE | flag::MLOCKED | flag::HUGE | flag::SLAB | flag::BUDDY), 0);
                prop_assert!(class != MemoryUse::UnmappedCache || mapped == 0 && flags & flag::MMAP == 0);
                prop_assert_eq!(class == MemoryUse::Anonymous, flags & flag::ANON != 0);
            }
        }
    }
}
