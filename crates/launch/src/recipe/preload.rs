//! What the preload library does: large mappings, segments of shared memory, code.

use std::path::Path;

use heat::units::{Bytes, HUGE_PAGE};

use crate::program::{Program, ProgramFamily};
use crate::recipe::obstacle::to_preloading;
use crate::recipe::{Context, Covered, Memory, MemoryMechanism, Recipe, Remark, Variable, forks};
use crate::request::{PageKind, Want, WantText};

/// What a copy of code costs.
pub(super) const COPIED_CODE: &str = "profilers and debuggers (perf, gdb) find no symbols there, and processes no longer share it through the page cache";
/// The loader's list of libraries to load first.
const PRELOAD: &str = "LD_PRELOAD";

pub(super) fn apply(recipe: &mut Recipe, context: Context<'_>, covered: Covered) {
    let request = context.request;
    let wanted = [
        (maps(recipe, context, covered), Memory::Mmap),
        (request.shm, Memory::Shm),
        (request.text != WantText::No && !covered.text, Memory::Text),
    ];
    let wanted: Vec<Memory> = wanted.into_iter().filter(|(wanted, _)| *wanted).map(|(_, memory)| memory).collect();
    if wanted.is_empty() {
        return;
    }
    let words = wanted.iter().map(Memory::to_string).collect::<Vec<_>>().join(", ");
    if let Some(why) = to_preloading(context.program) {
        recipe.left_to_pilot.push(format!("{words}: nothing can be preloaded, because {why}"));
        return;
    }
    let Some(library) = context.given.library.as_deref() else {
        recipe.left_to_pilot.push(format!("{words}: the preload library is not installed beside hugepilot"));
        return;
    };
    let Some(value) = in_front(library, context.given.environment.get(PRELOAD)) else {
        let place = library.display();
        recipe.left_to_pilot.push(format!("{words}: LD_PRELOAD cannot name {place}, because of its space or colon"));
        return;
    };
    let mut set = |name, value: String, why: &str, by| {
        recipe.variables.push(Variable { name, value, why: why.to_owned(), by });
    };
    set(PRELOAD, value, "hugepilot's library places what the program maps itself", None);
    // Which size of transparent ones it gets, the kernel decides.
    let pages = if request.pages.is_reserved() { request.pages } else { PageKind::Transparent };
    set("HUGEPILOT_PAGES", pages.to_string(), "on which pages", None);
    if wanted.contains(&Memory::Text) {
        recipe.named.extend(unaligned(context.program, request.text));
        if request.text == WantText::OrCopied {
            recipe.named.push(Remark::note(format!("code that is copied is private memory: {COPIED_CODE}")));
        }
    }
    for memory in wanted {
        let (name, value, why) = match memory {
            Memory::Shm => ("HUGEPILOT_SHM", "1", "shared memory"),
            Memory::Text if request.text == WantText::OrCopied => {
                ("HUGEPILOT_TEXT", "copy", "the program's code, copied where the file's own pages cannot be huge")
            }
            Memory::Text => ("HUGEPILOT_TEXT", "1", "the program's code, on the file's own pages"),
            Memory::Mmap | Memory::Heap | Memory::Buffers if request.mmap == Want::AfterFilled => {
                ("HUGEPILOT_MMAP", "after-filled", "large anonymous mappings, once the ones before were filled")
            }
            Memory::Mmap | Memory::Heap | Memory::Buffers => ("HUGEPILOT_MMAP", "1", "large anonymous mappings"),
        };
        set(name, value.to_owned(), why, Some(MemoryMechanism::of(context, memory, MemoryMechanism::PRELOAD)));
    }
}

/// The remark that huge pages of its files cannot map its code. What a shell or another program starts has code of its own.
fn unaligned(program: &Program, want: WantText) -> Option<Remark> {
    let starts_others =
        matches!(program.family, ProgramFamily::Shell | ProgramFamily::Wrapper | ProgramFamily::Elsewhere);
    let large = program.code.iter().filter(|file| file.aligned.is_empty() && file.code >= Bytes(HUGE_PAGE));
    let names: Vec<String> = large.map(|file| format!("{} ({})", file.path.display(), file.code)).collect();
    if starts_others || names.is_empty() {
        return None;
    }
    let what = format!(
        "code that huge pages of its file cannot map, because no huge page fits where it is loaded: {}",
        names.join(", ")
    );
    if want == WantText::OrCopied {
        return Some(Remark::note(format!("{what}; it is copied")));
    }
    let next_step = "link it with -Wl,-z,max-page-size=0x200000; or --text=copy copies it to private memory, where profilers and debuggers \
                     find no symbols";
    Some(Remark::new(what, next_step))
}

/// Whether to place large mappings. Pool memory is copied to ordinary memory for each forked child, which is bad for programs that fork
/// to write their data to a file. A shell has no such data, and the programs that it starts benefit.
fn maps(recipe: &mut Recipe, context: Context<'_>, covered: Covered) -> bool {
    let family = context.program.family;
    let is_copied = context.request.pages.is_reserved() && forks(family) && family != ProgramFamily::Shell;
    match context.request.mmap {
        Want::No => false,
        Want::ByDefault if covered.mmap => false,
        Want::ByDefault if is_copied => {
            recipe.named.push(Remark::note(
                "its large mappings stay off the pool: at each fork, as for a snapshot, all of them would be copied to ordinary memory",
            ));
            false
        }
        Want::Asked if is_copied => {
            recipe.name(
                "at each fork, as for a snapshot, what is mapped from the pool is copied to ordinary memory, which takes time and as much \
                 memory again",
                "leave --mmap out, or take --pages thp",
            );
            true
        }
        Want::ByDefault | Want::Asked | Want::AfterFilled => true,
    }
}

/// LD_PRELOAD with this library in front; None if its path contains a separator (ld.so(8)).
fn in_front(library: &Path, there: Option<&String>) -> Option<String> {
    let library = library.to_str().filter(|path| !path.contains([' ', ':']))?;
    match there.map(|there| there.trim()).filter(|there| !there.is_empty()) {
        None => Some(library.to_owned()),
        // A program under hugepilot may start hugepilot.
        Some(there) if there.split([' ', ':']).any(|each| each == library) => Some(there.to_owned()),
        Some(there) => Some(format!("{library}:{there}")),
    }
}
