//! The measures for a program, with a reason for each: a function of the program, the request, and what the machine offers.
//!
//! Owns: which mechanism suits which program, and its explanation. Never touches: the system, but for the page cache, where it tries what the file
//! of one program gets; nothing is set or started here.

mod allocator;
mod obstacle;
mod preload;
#[cfg(test)]
pub(super) mod samples;
mod server;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use crate::cached_file::gets_huge_page;
use crate::machine::MachineFacts;
use crate::program::{CodeFile, Program, ProgramFamily};
use crate::request::{LaunchRequest, PageKind};

/// How to start a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recipe {
    /// What cannot work as requested; shown before anything else.
    pub obstacles: Vec<Remark>,
    /// Environment variables, each once.
    pub variables: Vec<Variable>,
    /// Arguments to add.
    pub arguments: Vec<Insert>,
    /// Settings that are left to the user, and settings of the user that were kept.
    pub named: Vec<Remark>,
    /// What only the pilot can do for this program, and why.
    pub left_to_pilot: Vec<String>,
}

/// A remark for the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remark {
    /// The problem.
    pub what: String,
    /// What to do; None if nothing has to be done.
    pub next_step: Option<String>,
}

/// An environment variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// Its whole value, including what the user had set.
    pub value: String,
    /// What it does.
    pub why: String,
    /// The mechanism that puts memory on huge pages; None if this only supports another one.
    pub by: Option<MemoryMechanism>,
}

/// Arguments to add to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Insert {
    /// The words.
    pub words: Vec<String>,
    /// Whether they come before the user's own, or after them.
    pub place: ArgumentPlace,
    /// What they do.
    pub why: String,
    /// The mechanism that puts memory on huge pages; None if they only remove an obstacle.
    pub by: Option<MemoryMechanism>,
}

/// Where arguments are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentPlace {
    /// Right after the program.
    First,
    /// After all others.
    Last,
}

/// A part of a program's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Memory {
    /// Memory of an allocator or a runtime.
    Heap,
    /// A server's own buffers.
    Buffers,
    /// Large anonymous mappings.
    Mmap,
    /// Segments of System V shared memory.
    Shm,
    /// The program's code.
    Text,
}

/// Which mechanism puts which memory on huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct MemoryMechanism {
    /// Which memory.
    pub memory: Memory,
    /// The mechanism: a setting's name, or `preload`.
    pub name: &'static str,
    /// Whether the pages come from a pool.
    #[serde(skip)]
    pub is_reserved: bool,
}

/// The user's input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// The environment, as far as it is UTF-8.
    pub environment: BTreeMap<String, String>,
    /// The program's arguments, without its name.
    pub arguments: Vec<String>,
    /// The preload library, if it was found.
    pub library: Option<PathBuf>,
}

/// Everything that a recipe depends on.
#[derive(Clone, Copy)]
struct Context<'a> {
    program: &'a Program,
    request: &'a LaunchRequest,
    machine: &'a MachineFacts,
    given: &'a Given,
    /// Whether a file's code gets huge pages in the page cache. It reads the file: to be asked only where a measure depends on it.
    gets_huge_pages: &'a dyn Fn(&CodeFile) -> bool,
}

/// Memory that another mechanism already covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Covered {
    heap: bool,
    mmap: bool,
    text: bool,
}

/// The recipe for a program. Where it depends on that, 2 MiB of the program's code are read into the page cache.
pub fn recipe(program: &Program, request: &LaunchRequest, machine: &MachineFacts, given: &Given) -> Recipe {
    recipe_in(Context { program, request, machine, given, gets_huge_pages: &gets_huge_pages })
}

/// The first 2 MiB stand for all: on file systems without large folios, none of a file is on huge pages.
fn gets_huge_pages(file: &CodeFile) -> bool {
    file.aligned.first().is_some_and(|part| gets_huge_page(&file.path, part.start))
}

fn recipe_in(context: Context<'_>) -> Recipe {
    let Context { program, request, machine, .. } = context;
    let mut recipe = Recipe { obstacles: obstacle::all(context), ..Recipe::default() };
    if let Some(why) = obstacle::out_of_reach(program) {
        recipe.left_to_pilot.push(why);
        return recipe;
    }
    recipe.named.extend(obstacle::starts_another(context));
    // Only the preload library takes its pool pages before the program uses them.
    let without_promises = LaunchRequest { pages: PageKind::Transparent, ..*request };
    let of_promises = match machine.ending_limit() {
        Some(_) => Context { request: &without_promises, ..context },
        None => context,
    };
    let covered = server::apply(&mut recipe, of_promises);
    if request.heap && !covered.heap {
        allocator::apply(&mut recipe, of_promises);
    }
    preload::apply(&mut recipe, context, covered);
    recipe
}

impl Given {
    /// Whether an argument names an option, in any form: `--large-pages=0`, `--skip_large_pages`, `-c huge_pages=off`.
    fn names(&self, option: &str) -> bool {
        let is_it = |word: &String| {
            let name = word.split('=').next().unwrap_or_default().trim().to_ascii_lowercase().replace('_', "-");
            let name = name.trim_start_matches('-');
            // `-chuge_pages=off` and `--skip-large-pages`.
            let is_before =
                |before: &str| ["", "c"].contains(&before) || before.ends_with('-') && !before.contains('/');
            name.strip_suffix(option).is_some_and(is_before)
        };
        self.arguments.iter().any(is_it)
    }
}

impl Recipe {
    /// All mechanisms in use, each once.
    pub fn mechanisms(&self) -> Vec<MemoryMechanism> {
        let variables = self.variables.iter().filter_map(|variable| variable.by);
        let all: BTreeSet<_> = variables.chain(self.arguments.iter().filter_map(|insert| insert.by)).collect();
        all.into_iter().collect()
    }

    /// Whether the preload library puts code on huge pages.
    pub fn places_text(&self) -> bool {
        let places = |each: &MemoryMechanism| each.memory == Memory::Text && each.name == MemoryMechanism::PRELOAD;
        self.mechanisms().iter().any(places)
    }

    /// The user's arguments together with the added ones.
    pub fn arguments_around<T: From<String>>(&self, given: impl IntoIterator<Item = T>) -> Vec<T> {
        let at = |place: ArgumentPlace| {
            let inserts = self.arguments.iter().filter(move |insert| insert.place == place);
            inserts.flat_map(|insert| insert.words.iter().cloned().map(T::from))
        };
        at(ArgumentPlace::First).chain(given).chain(at(ArgumentPlace::Last)).collect()
    }

    /// Appends words to a variable that is a list. Each word comes with the prefix that identifies the user's own setting, which then
    /// stays as it is.
    fn extend(
        &mut self,
        context: Context<'_>,
        list: &List,
        words: &[(&str, String)],
        why: String,
        by: MemoryMechanism,
    ) {
        let there = context.given.environment.get(list.name).map_or("", |value| value.trim());
        let alike = |word: &str| word.trim().replace('_', "-");
        let is_there =
            |beginning: &str| there.split(list.separator).any(|word| alike(word).starts_with(&alike(beginning)));
        let (kept, new): (Vec<_>, Vec<_>) = words.iter().partition(|(beginning, _)| is_there(beginning));
        for (beginning, _) in kept {
            self.keep(format!("{} has {beginning} already", list.name));
        }
        // If the user has set the first one, the settings that depend on it would contradict that.
        if new.first().map(|(beginning, _)| beginning) != words.first().map(|(beginning, _)| beginning) {
            return;
        }
        let all =
            Some(there).filter(|there| !there.is_empty()).into_iter().chain(new.iter().map(|(_, word)| word.as_str()));
        let value = all.collect::<Vec<_>>().join(&list.separator.to_string());
        self.variables.push(Variable { name: list.name, value, why, by: Some(by) });
    }

    /// Sets a variable that holds one value, unless the user did.
    fn set(&mut self, context: Context<'_>, name: &'static str, value: String, why: &str, by: Option<MemoryMechanism>) {
        if context.given.environment.contains_key(name) {
            self.keep(format!("{name} is set already"));
        } else {
            self.variables.push(Variable { name, value, why: why.to_owned(), by });
        }
    }

    fn insert(&mut self, place: ArgumentPlace, words: &[&str], why: &str, by: Option<MemoryMechanism>) {
        let words = words.iter().map(|&word| word.to_owned()).collect();
        self.arguments.push(Insert { words, place, why: why.to_owned(), by });
    }

    fn keep(&mut self, what: String) {
        self.named.push(Remark::note(format!("{what}; it stays as it is")));
    }

    fn name(&mut self, what: impl Into<String>, next_step: impl Into<String>) {
        self.named.push(Remark::new(what, next_step));
    }
}

impl Remark {
    pub(crate) fn new(what: impl Into<String>, next_step: impl Into<String>) -> Self {
        Self { what: what.into(), next_step: Some(next_step.into()) }
    }

    pub(crate) fn note(what: impl Into<String>) -> Self {
        Self { what: what.into(), next_step: None }
    }
}

/// Whether a program routinely forks children that keep using its memory.
fn forks(family: ProgramFamily) -> bool {
    matches!(family, ProgramFamily::Shell | ProgramFamily::Postgres | ProgramFamily::Redis)
}

/// A variable that holds several settings.
struct List {
    name: &'static str,
    separator: char,
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl MemoryMechanism {
    /// The name of the preload library's mechanism.
    pub const PRELOAD: &'static str = "preload";

    fn transparent(memory: Memory, name: &'static str) -> Self {
        Self { memory, name, is_reserved: false }
    }

    fn of(context: Context<'_>, memory: Memory, name: &'static str) -> Self {
        Self { memory, name, is_reserved: context.request.pages.is_reserved() }
    }
}
