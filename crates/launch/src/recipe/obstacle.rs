//! What cannot work on this machine, or for this program.

use heat::units::{Bytes, GIANT_PAGE};
use kernel::hugetlb::Pool;
use kernel::hugetlb_limits::Limit;
use kernel::thp::DIRECTORY;

use crate::program::{Linking, Program, ProgramFamily};
use crate::recipe::{Context, Remark};
use crate::request::PageKind;

/// Remarks that are shown before anything else.
pub(super) fn all(context: Context<'_>) -> Vec<Remark> {
    let mut remarks = Vec::new();
    match context.request.pages {
        PageKind::Transparent => remarks.extend(switched_off(context)),
        PageKind::Smaller(_) => match size_switched_off(context) {
            Some(off) => remarks.push(off),
            None => {
                remarks.extend(not_asked_for(context));
                remarks.extend(context.machine.gives_2_mib.then(|| larger_first(context)));
            }
        },
        PageKind::Huge | PageKind::Giant => remarks.extend(pool(context)),
    }
    let hook_is_gone = context.program.has_tunable == Ok(true);
    if hook_is_gone && context.given.environment.contains_key("HUGETLB_MORECORE") {
        remarks.push(Remark::new(
            "HUGETLB_MORECORE does nothing with this program's C library: the hook that libhugetlbfs needs is gone since glibc 2.34",
            "leave it out; GLIBC_TUNABLES does what it did",
        ));
    }
    remarks
}

fn switched_off(context: Context<'_>) -> Option<Remark> {
    match context.machine.transparent.as_deref() {
        Some("always" | "madvise") => None,
        Some(_) => Some(Remark::new(
            "transparent huge pages are switched off on this machine (never): what the program asks for is refused, and only the pilot \
             promotes, where page walks pay for it",
            format!("echo madvise > /{}", context.machine.setting),
        )),
        None => Some(Remark::new(
            "this kernel has no transparent huge pages",
            "boot one that was built with CONFIG_TRANSPARENT_HUGEPAGE, or take pages from a pool: --pages 2M",
        )),
    }
}

/// Each size has its own setting. What is asked for goes to the largest size that is on, and the pilot knows 2 MiB only.
fn size_switched_off(context: Context<'_>) -> Option<Remark> {
    let pages = context.request.pages;
    let instead = match context.machine.gives_2_mib {
        true => "the program gets pages of 2 MiB where they fit, which are on, and ordinary ones elsewhere",
        false => {
            "those of 2 MiB are off, too: what the program asks for is refused, unless another size is on, and only the pilot promotes, \
             to 2 MiB, where page walks pay for it"
        }
    };
    let machine = context.machine;
    (!machine.honours_requests()).then(|| {
        Remark::new(
            format!("transparent huge pages of {pages} are switched off on this machine (never): {instead}"),
            format!("echo madvise > /{}", machine.setting),
        )
    })
}

/// glibc, jemalloc and the JVM ask for no size where the general mode is another one.
fn not_asked_for(context: Context<'_>) -> Option<Remark> {
    let (own, general) = (context.machine.transparent.as_deref()?, context.machine.general.as_deref()?);
    (own == "madvise" && general != "madvise").then(|| {
        Remark::new(
            format!(
                "pages of {} are given to programs that ask, and allocators ask only where the general mode is madvise; it is {general}",
                context.request.pages
            ),
            format!("echo madvise > /{DIRECTORY}/enabled"),
        )
    })
}

fn larger_first(context: Context<'_>) -> Remark {
    let pages = context.request.pages;
    Remark::note(format!(
        "the kernel gives pages of {pages} where it gives none of 2 MiB: `--pages thp` gets both, as far as their settings allow it \
         (`hugepilot doctor` shows them)"
    ))
}

fn pool(context: Context<'_>) -> Vec<Remark> {
    let Some(pool) = &context.machine.pool else { return Vec::new() };
    let what_there_is = match context.machine.binding_limit() {
        Some(limit) => limited(context, pool, limit),
        None => given_out(context, pool),
    };
    std::iter::once(what_there_is).chain(context.machine.ending_limit().map(ends_programs)).collect()
}

/// How many pages PostgreSQL needs.
const POSTGRES_NEEDS: &str = "`postgres -C shared_memory_size_in_huge_pages -D DATA` says how many it needs; `hugepilot pool set 2M=SO_MANY` provides them";

fn given_out(context: Context<'_>, pool: &Pool) -> Remark {
    let (pages, available) = (context.request.pages, pool.available());
    if available > 0 {
        let held = Bytes(available.saturating_mul(pool.page_size.0));
        let there_is = format!("the pool of {pages} pages can give out {available} ({held})");
        return match context.program.family {
            ProgramFamily::Postgres => {
                let whole = "PostgreSQL's shared buffers come from it as a whole or, with huge_pages = try, not at all";
                Remark::new(format!("{there_is}; {whole}"), POSTGRES_NEEDS)
            }
            _ => Remark::note(format!(
                "{there_is}; what is beyond gets ordinary pages, or transparent huge ones where the program asks for them"
            )),
        };
    }
    let found = match pool.free {
        0 => format!("it has {}, all in use", pool.total),
        free => format!("it has {free} free, all of them promised to others"),
    };
    let found = if pool.total == 0 { "it is empty".to_owned() } else { found };
    let more = (GIANT_PAGE / pool.page_size.0).max(1);
    let instead = match context.program.family {
        ProgramFamily::Java => "the JVM gets ordinary pages (--pages thp: transparent huge ones)",
        _ => "the program gets transparent huge pages or ordinary ones",
    };
    let next_step = match context.program.family {
        ProgramFamily::Postgres => POSTGRES_NEEDS.to_owned(),
        _ => format!("hugepilot pool set {pages}={}", pool.total.saturating_add(more)),
    };
    Remark::new(format!("the pool of {pages} pages can give out none ({found}): {instead}"), next_step)
}

fn limited(context: Context<'_>, pool: &Pool, limit: &Limit) -> Remark {
    let of = if limit.of_reservations { "reservations" } else { "use" };
    Remark::new(
        format!(
            "the pool of {} pages could give out {}, but control group {} may have only {} more: what is beyond gets ordinary pages",
            context.request.pages,
            pool.available(),
            limit.cgroup,
            limit.pages_left()
        ),
        format!(
            "raise the group's limit on {of}, or start the program in another group; `hugepilot pool` shows these limits"
        ),
    )
}

/// Memory mapped from a pool is reserved at once, but a limit on use counts it only when it is touched.
fn ends_programs(limit: &Limit) -> Remark {
    Remark::new(
        format!(
            "the kernel would end the program (SIGBUS) where it touches more of what it was promised than the {} of control group {}: heap \
             and buffers get transparent pages instead, and only hugepilot's library, which takes its pages at once, the pool's",
            limit.limit, limit.cgroup
        ),
        "raise that limit, or set the group's limit on reservations (rsvd) no higher, so that mmap fails instead",
    )
}

/// Why neither the environment nor arguments reach a program.
pub(super) fn out_of_reach(program: &Program) -> Option<String> {
    if program.family == ProgramFamily::Elsewhere {
        return Some(
            "it starts the program with an environment of its own, or elsewhere: put hugepilot behind it (sudo hugepilot run ..), or to start \
             a program as another user take setpriv, which keeps the environment"
                .to_owned(),
        );
    }
    if program.gains_rights {
        return Some(
            "it gains rights when it starts (set-uid, or capabilities of its file), so that its loader ignores LD_PRELOAD and \
             GLIBC_TUNABLES"
                .to_owned(),
        );
    }
    (program.linking == Linking::ThirtyTwoBit).then(|| {
        "it is a 32-bit program, whose address space is too small to gain; the pilot leaves it alone, too".to_owned()
    })
}

/// What is lost if the command only starts the program that is meant.
pub(super) fn starts_another(context: Context<'_>) -> Option<Remark> {
    let program = context.program;
    if program.started_by_script().is_some() {
        let script = program.script.as_deref()?.display();
        return Some(Remark::new(
            format!("{script} is a script: what it starts inherits the environment, but is not inspected"),
            "name the program itself, if you know it (for Python of pyenv, `pyenv which python3` prints it)",
        ));
    }
    // Without these everything is in the environment, and behind another user's program there would be no pilot.
    let depends_on_program = context.request.heap || context.request.pages.is_reserved();
    (program.family == ProgramFamily::Wrapper && depends_on_program).then(|| {
        let name = program.path.file_name().unwrap_or_default().to_string_lossy();
        Remark::new(
            "it starts another program, which gets what the environment brings, but no arguments or settings of its own",
            format!("put hugepilot behind it: {name} .. hugepilot run .. -- CMD (where that may not observe, nothing is promoted)"),
        )
    })
}

/// Why no library can be preloaded into a program; None if one can.
pub(super) fn to_preloading(program: &Program) -> Option<String> {
    let why = match &program.linking {
        Linking::Glibc => return None,
        Linking::Musl => "it is linked with musl, whose loader the preload library was not made for",
        Linking::Static => "it is linked statically, so that there is no loader to honour LD_PRELOAD",
        Linking::Go => "it is a Go program, which maps memory by system calls of its own, past any library",
        Linking::ThirtyTwoBit => "it is a 32-bit program",
        Linking::Other(loader) => return Some(format!("its loader is {}, not glibc's", loader.display())),
        Linking::Unknown => "its file cannot be read as a program",
    };
    Some(why.to_owned())
}
