//! The heap: puts an allocator's memory on huge pages through the allocator's own settings.

use crate::program::{Allocator, JEMALLOC_OPTIONS, Linking, MIMALLOC_OPTION, ProgramFamily, TCMALLOC_OPTION, TUNABLE};
use crate::recipe::{Context, List, Memory, MemoryMechanism, Recipe, Remark, forks};
use crate::request::PageKind;

pub(super) fn apply(recipe: &mut Recipe, context: Context<'_>) {
    let program = context.program;
    let is_linked = |allocator: Allocator| program.allocators.contains(&allocator);
    for (name, default) in JEMALLOC_OPTIONS.into_iter().zip([is_linked(Allocator::Jemalloc), false, false]) {
        if default || program.mentions(name) {
            jemalloc(recipe, context, name);
        }
    }
    if is_linked(Allocator::Mimalloc) || program.mentions(MIMALLOC_OPTION) {
        mimalloc(recipe, context);
    }
    if is_linked(Allocator::Tcmalloc) || program.mentions(TCMALLOC_OPTION) {
        tcmalloc(recipe, context);
    }
    // An allocator linked in under names of its own leaves the C library's to the rest of the program.
    if program.allocators.is_empty() {
        glibc(recipe, context);
    }
    if [Some(program.family), program.started_by_script()].contains(&Some(ProgramFamily::Python)) {
        recipe.name(
            "Python takes small objects from arenas of its own, past malloc",
            "PYTHONMALLOC=malloc brings them to malloc's huge pages, at some cost of its own",
        );
    }
}

/// Transparent huge pages only: it cannot use a pool.
fn jemalloc(recipe: &mut Recipe, context: Context<'_>, name: &'static str) {
    let words = [("thp:", "thp:always".to_owned()), ("metadata_thp:", "metadata_thp:auto".to_owned())];
    let why = match context.request.pages.is_reserved() {
        true => "jemalloc asks for transparent huge pages; it cannot take a pool's",
        false => "jemalloc asks for huge pages for all that it maps",
    };
    let by = MemoryMechanism::transparent(Memory::Heap, "jemalloc");
    recipe.extend(context, &List { name, separator: ',' }, &words, why.to_owned(), by);
}

fn mimalloc(recipe: &mut Recipe, context: Context<'_>) {
    let (available, by) = (context.machine.available(), MemoryMechanism::of(context, Memory::Heap, "mimalloc"));
    let name = "MIMALLOC_ALLOW_LARGE_OS_PAGES";
    match context.request.pages {
        // 2 means transparent ones only; before mimalloc 2.2 it meant the same as 1.
        PageKind::Transparent | PageKind::Smaller(_) => {
            recipe.set(context, name, "2".to_owned(), "mimalloc asks for transparent huge pages", Some(by));
            older_mimalloc(recipe, context, "2");
        }
        PageKind::Giant if available > 0 => {
            let why = "mimalloc takes so many pages of 1 GiB when it starts: all that the pool can give out";
            recipe.set(context, "MIMALLOC_RESERVE_HUGE_OS_PAGES", available.to_string(), why, Some(by));
        }
        PageKind::Huge | PageKind::Giant => {
            let why = "mimalloc takes pages of 2 MiB from the pool, where it has some";
            recipe.set(context, name, "1".to_owned(), why, Some(by));
            older_mimalloc(recipe, context, "1");
        }
    }
}

/// Later ones read this name, too, unless the new one is set.
fn older_mimalloc(recipe: &mut Recipe, context: Context<'_>, value: &str) {
    if !context.given.environment.contains_key("MIMALLOC_ALLOW_LARGE_OS_PAGES") {
        let why = "the same for mimalloc 2.0, which knows it by this name";
        recipe.set(context, "MIMALLOC_LARGE_OS_PAGES", value.to_owned(), why, None);
    }
}

fn tcmalloc(recipe: &mut Recipe, context: Context<'_>) {
    let pages = context.request.pages;
    if !pages.is_reserved() {
        let why = "tcmalloc (gperftools) has no switch for transparent huge pages, and maps memory past any library";
        recipe.left_to_pilot.push(why.to_owned());
        return;
    }
    let Some(mount) = &context.machine.mount else {
        recipe.name(
            format!("tcmalloc (gperftools) takes a pool's pages as files, and those of {pages} are not mounted"),
            format!("hugepilot pool mount, or: mount -t hugetlbfs -o pagesize={pages} none /mnt/{pages}"),
        );
        return;
    };
    let by = MemoryMechanism::of(context, Memory::Heap, "tcmalloc");
    let path = mount.join("hugepilot").display().to_string();
    recipe.set(context, TCMALLOC_OPTION, path, "tcmalloc (gperftools) maps its memory from the pool", Some(by));
    let why = "without it a child made by fork would share the heap, and write into it";
    recipe.set(context, "TCMALLOC_MEMFS_MAP_PRIVATE", "1".to_owned(), why, None);
}

fn glibc(recipe: &mut Recipe, context: Context<'_>) {
    let program = context.program;
    if program.has_tunable != Ok(true) {
        let why = match (&program.linking, &program.has_tunable) {
            (Linking::Glibc, Ok(_)) => "its C library is older than glibc 2.35, whose malloc has no huge pages",
            (Linking::Glibc, Err(why)) => why,
            (Linking::Go, _) => {
                "the heap of a Go program has no switch, and its runtime is watched for six minutes before anything is promoted"
            }
            (Linking::Musl, _) => "musl's malloc has no huge pages",
            (Linking::Static, _) => "it is linked statically, with no C library that knows glibc.malloc.hugetlb",
            (Linking::ThirtyTwoBit | Linking::Other(_) | Linking::Unknown, _) => "its allocator is not known",
        };
        recipe.left_to_pilot.push(format!("heap: {why}"));
        return;
    }
    let pages = if forks(program.family) { PageKind::Transparent } else { context.request.pages };
    if pages != context.request.pages && context.request.pages.is_reserved() {
        recipe.named.push(Remark::note(
            "its heap gets transparent huge pages, not the pool's: it starts others by fork, and a child that writes to a pool's page that \
             it shares is ended by the kernel (SIGBUS) where the pool has none left",
        ));
    } else if pages.is_reserved() {
        recipe.name(
            "a child made by fork copies each of the pool's pages that it writes to, and is ended by the kernel (SIGBUS) where the pool has \
             none left",
            "keep pages to spare for a program that forks, or take --pages thp",
        );
    }
    let list = List { name: "GLIBC_TUNABLES", separator: ':' };
    let by = MemoryMechanism { memory: Memory::Heap, name: TUNABLE, is_reserved: pages.is_reserved() };
    let settings = tunables(pages);
    let words: Vec<(&str, String)> = settings.iter().map(|(name, value)| (*name, format!("{name}={value}"))).collect();
    let why = match pages {
        PageKind::Transparent | PageKind::Smaller(_) => {
            "malloc asks for huge pages; blocks below 32 MiB share them instead of being mapped one by one"
        }
        PageKind::Huge => "malloc takes pages of 2 MiB from the pool, and ordinary ones where it has none left",
        PageKind::Giant => {
            "malloc takes pages of 1 GiB from the pool, and ordinary ones where it has none left; one arena for all threads, because each \
             would take four such pages"
        }
    };
    recipe.extend(context, &list, &words, why.to_owned(), by);
    let is_tuned = recipe.variables.last().is_some_and(|variable| variable.name == list.name);
    if is_tuned && !by.is_reserved && program.linking == Linking::Glibc {
        honour_madvise(recipe, context);
    }
}

/// glibc 2.35 and 2.36 compare the machine's setting with one byte more than they have read; a lazily bound call has left that byte on
/// the stack. In half of all starts a program did not recognise `madvise`, and got no huge pages.
fn honour_madvise(recipe: &mut Recipe, context: Context<'_>) {
    if context.machine.general.as_deref() == Some("madvise") {
        let why = "glibc 2.36 misreads the setting `madvise` in some starts, but not once all calls are bound";
        recipe.set(context, "LD_BIND_NOW", "1".to_owned(), why, None);
    }
}

/// The largest threshold that malloc adapts to by itself (mallopt(3), "M_MMAP_THRESHOLD").
const LARGEST_ADAPTED: u64 = 32 << 20;

/// Tunables of glibc (GNU libc manual, "Memory Allocation Tunables"), the most important first.
///
/// Malloc maps each block from 128 KiB on by itself, where no huge page fits below 2 MiB. It raises that threshold as it frees such blocks,
/// but not once one is set. With 2 MiB it mapped each larger temporary anew, on base pages at both ends: SciPy's of 4 MB took 931 page faults
/// each. Malloc trims from twice the threshold on, as it would by itself.
fn tunables(pages: PageKind) -> Vec<(&'static str, u64)> {
    let size = pages.size().0;
    let (huge, threshold) = match pages {
        PageKind::Transparent | PageKind::Smaller(_) => (1, LARGEST_ADAPTED),
        // An arena of a thread has four such pages, and what does not fit into one is on base pages unless it is mapped separately.
        PageKind::Huge => (size, 3 * size),
        PageKind::Giant => (size, size),
    };
    let mut settings = vec![
        (TUNABLE, huge),
        ("glibc.malloc.mmap_threshold", threshold),
        ("glibc.malloc.trim_threshold", 2 * threshold),
    ];
    if pages == PageKind::Giant {
        settings.push(("glibc.malloc.arena_max", 1));
    }
    settings
}
