//! Programs with their own setting for huge pages: it is set in the environment, added to the arguments if that is safe, and otherwise
//! suggested.

use crate::program::{MYSQL_OPTION, MYSQL_VARIABLE, POSTGRES_OPTION, ProgramFamily, REDIS_OPTION};
use crate::recipe::preload::COPIED_CODE;
use crate::recipe::{ArgumentPlace, Context, Covered, Given, List, Memory, MemoryMechanism, Recipe, Remark};
use crate::request::{LaunchRequest, PageKind, Want, WantText};

pub(super) fn apply(recipe: &mut Recipe, context: Context<'_>) -> Covered {
    match context.program.family {
        ProgramFamily::Java => java(recipe, context),
        ProgramFamily::Postgres => postgres(recipe, context),
        ProgramFamily::Redis => redis(recipe, context),
        ProgramFamily::Memcached => memcached(recipe, context),
        ProgramFamily::Node => node(recipe, context),
        ProgramFamily::Mysql => mysql(recipe, context),
        ProgramFamily::Python
        | ProgramFamily::Shell
        | ProgramFamily::Wrapper
        | ProgramFamily::Elsewhere
        | ProgramFamily::Other => Covered::default(),
    }
}

/// man java. It falls back to ordinary pages with a warning.
fn java(recipe: &mut Recipe, context: Context<'_>) -> Covered {
    let covered = Covered { heap: true, mmap: true, text: false };
    if !context.request.heap {
        return Covered { heap: false, ..covered };
    }
    if let Some(switch) = java_switch(context) {
        recipe.keep(format!("{switch} is given already"));
        return covered;
    }
    let large = |size: &str| {
        let size = ("-XX:LargePageSizeInBytes", format!("-XX:LargePageSizeInBytes={size}"));
        vec![("-XX:+UseLargePages", "-XX:+UseLargePages".to_owned()), size]
    };
    let name = "-XX:+UseTransparentHugePages";
    let (words, name) = match context.request.pages {
        PageKind::Transparent | PageKind::Smaller(_) => (vec![(name, name.to_owned())], name),
        PageKind::Huge => (large("2m"), "-XX:+UseLargePages"),
        PageKind::Giant => (large("1g"), "-XX:+UseLargePages"),
    };
    let list = List { name: "JAVA_TOOL_OPTIONS", separator: ' ' };
    let by = MemoryMechanism::of(context, Memory::Heap, name);
    recipe.extend(context, &list, &words, "the JVM places its heap and its compiled code itself".to_owned(), by);
    covered
}

/// The user's own setting for or against huge pages, from any place where a JVM reads it.
fn java_switch<'a>(context: Context<'a>) -> Option<&'a str> {
    let Given { environment, arguments, .. } = context.given;
    let variables = ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"].into_iter();
    let words = variables.filter_map(|name| environment.get(name)).flat_map(|value| value.split_ascii_whitespace());
    let mut words = words.chain(arguments.iter().map(String::as_str));
    words.find(|word| {
        let name = word.strip_prefix("-XX:").map(|name| name.trim_start_matches(['+', '-']));
        name.is_some_and(|name| ["UseLargePages", "UseTransparentHugePages"].contains(&name))
    })
}

/// Its buffers are shared memory, for which it only supports pool pages. If they are aligned for huge pages, the pilot promotes them.
fn postgres(recipe: &mut Recipe, context: Context<'_>) -> Covered {
    let pages = context.request.pages;
    if !wants_buffers(context.request) {
        return Covered::default();
    }
    if !pages.is_reserved() {
        recipe.named.push(Remark::note(
            "PostgreSQL's shared buffers are placed where huge pages fit; the pilot promotes them once, for all server processes, when they \
             have been filled",
        ));
        return Covered::default();
    }
    let covered = Covered { mmap: true, ..Covered::default() };
    if context.given.names("huge-pages") {
        recipe.keep("huge_pages is given already".to_owned());
        return covered;
    }
    let size = if pages == PageKind::Giant { "huge_page_size=1GB" } else { "huge_page_size=2MB" };
    let knows_sizes = context.program.mentions(POSTGRES_OPTION);
    // Modes such as --single interpret the last argument differently.
    let takes_more = !context.given.arguments.first().is_some_and(|word| word.starts_with("--"))
        && !context.given.arguments.iter().any(|word| word == "--");
    if !takes_more || pages == PageKind::Giant && !knows_sizes {
        let next_step = format!("set huge_pages = try and {} in postgresql.conf", size.replace('=', " = "));
        recipe.name("PostgreSQL's own switch cannot be added here (huge_page_size came with 14)", next_step);
        return covered;
    }
    let by = MemoryMechanism::of(context, Memory::Buffers, "huge_pages");
    let mut words = vec!["-c", "huge_pages=try"];
    if knows_sizes && !context.given.names("huge-page-size") {
        words.extend(["-c", size]);
    }
    let why =
        "PostgreSQL takes its shared buffers from the pool; with `on` it would not start where the pool has too few";
    recipe.insert(ArgumentPlace::Last, &words, why, Some(by));
    covered
}

/// It disables huge pages for itself if their mode is `always`.
fn redis(recipe: &mut Recipe, context: Context<'_>) -> Covered {
    let does_not_serve = |word: &String| ["-v", "--version", "-h", "--help", "--test-memory"].contains(&word.as_str());
    let given = context.given;
    if !context.program.mentions(REDIS_OPTION) || given.arguments.iter().any(does_not_serve) {
        return Covered::default();
    }
    if given.names(REDIS_OPTION) {
        recipe.keep(format!("{REDIS_OPTION} is given already"));
        return Covered::default();
    }
    let why = "Redis switches huge pages off for itself where transparent huge pages are at `always`";
    recipe.insert(ArgumentPlace::Last, &["--disable-thp", "no"], why, None);
    Covered::default()
}

/// man memcached. It exits if transparent huge pages are switched off, and does not support pools.
fn memcached(recipe: &mut Recipe, context: Context<'_>) -> Covered {
    if context.request.pages.is_reserved() || !context.request.heap {
        return Covered::default();
    }
    let has_it = context.given.arguments.iter().any(|word| word == "-L" || word == "--enable-largepages");
    if has_it {
        recipe.keep("-L is given already".to_owned());
    } else if context.machine.honours_requests() {
        let by = MemoryMechanism::transparent(Memory::Buffers, "-L");
        let why = "memcached maps its slabs in one piece that huge pages fit into, instead of 1 MiB at a time";
        recipe.insert(ArgumentPlace::First, &["-L"], why, Some(by));
    }
    Covered::default()
}

/// `--use-largepages` copies node's own code to private memory; it is allowed in NODE_OPTIONS. Huge pages of its file keep symbols and sharing, so
/// they come first where the file gets them: without large folios and without collapsing of files, it does not.
fn node(recipe: &mut Recipe, context: Context<'_>) -> Covered {
    if context.request.text == WantText::No {
        return Covered::default();
    }
    let covered = Covered { text: true, ..Covered::default() };
    if context.given.names("use-largepages") {
        recipe.keep("--use-largepages is given already".to_owned());
        return covered;
    }
    let own_code = context.program.code.iter().find(|file| file.path == context.program.path);
    if own_code.is_some_and(context.gets_huge_pages) {
        return Covered::default();
    }
    recipe.named.push(Remark::note(format!("code of node is copied by itself: {COPIED_CODE}")));
    let list = List { name: "NODE_OPTIONS", separator: ' ' };
    let words = [("--use-largepages", "--use-largepages=silent".to_owned())];
    let by = MemoryMechanism::transparent(Memory::Text, "--use-largepages");
    recipe.extend(context, &list, &words, "node copies its own code to transparent huge pages".to_owned(), by);
    covered
}

/// It falls back to ordinary pages with a warning.
fn mysql(recipe: &mut Recipe, context: Context<'_>) -> Covered {
    let pages = context.request.pages;
    if !wants_buffers(context.request) || !context.program.mentions(MYSQL_VARIABLE) {
        return Covered::default();
    }
    if !pages.is_reserved() {
        recipe.name(
            "MariaDB switches transparent huge pages off for itself (10.11 does)",
            "--pages 2M puts its buffers on a pool's pages",
        );
        return Covered::default();
    }
    if context.given.names(MYSQL_OPTION) {
        recipe.keep(format!("{MYSQL_OPTION} is given already"));
        return Covered { mmap: true, ..Covered::default() };
    }
    if pages == PageKind::Giant {
        recipe.name(
            "its switch --large-pages takes pages of the machine's default size",
            "boot with default_hugepagesz=1G, or take --pages 2M",
        );
        return Covered::default();
    }
    let by = MemoryMechanism::of(context, Memory::Buffers, "--large-pages");
    recipe.insert(ArgumentPlace::Last, &["--large-pages"], "it takes its buffers from the pool", Some(by));
    Covered { mmap: true, ..Covered::default() }
}

/// A server maps its buffers itself, or has them in a System V segment.
fn wants_buffers(request: &LaunchRequest) -> bool {
    matches!(request.mmap, Want::ByDefault | Want::Asked) || request.shm
}
