//! One table of the file. Its keys are taken one by one; any key left over is unknown.
//!
//! Owns: the kinds of value, line numbers, and the suggestion for an unknown key. Never touches: what a key means.

use std::fmt::Display;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::Mistake;

/// Bytes of a value: the longest path has that many (`PATH_MAX`).
const LONGEST_VALUE: usize = 4096;
/// Rules of one kind: each is evaluated for every process on the machine.
const MOST_RULES: usize = 256;
/// Characters of a key or value that a message quotes.
const SHOWN: usize = 60;
/// How similar, from 0 to 1, a known key must be to be suggested for an unknown one.
const ALIKE: f64 = 0.8;

/// A table of the file.
pub(super) struct Section<'a> {
    text: &'a str,
    begin: usize,
    entries: DeTable<'a>,
    known: Vec<&'static str>,
}

impl<'a> Section<'a> {
    /// The whole file.
    pub(super) fn of_file(text: &'a str) -> Result<Self, Mistake> {
        let table = DeTable::parse(text).map_err(|error| Mistake::Syntax {
            line: line_at(text, error.span().map_or(text.len(), |span| span.start)),
            message: error.message().to_owned(),
        })?;
        Ok(Self { text, begin: 0, entries: table.into_inner(), known: Vec::new() })
    }

    /// The line in which it begins, counted from 1.
    pub(super) fn line(&self) -> usize {
        line_at(self.text, self.begin)
    }

    /// The value of a key, parsed by `read`; None if it is not given. Numbers need no quotes.
    pub(super) fn value<T, E: Display>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, Mistake> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let text = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) => number.to_string(),
            DeValue::Float(number) => number.to_string(),
            _ => return Err(self.wrong(key, &value, "a text in quotes, or a number")),
        };
        if text.len() > LONGEST_VALUE {
            return Err(self.wrong(key, &value, "something shorter"));
        }
        read(&text).map(Some).map_err(|problem| self.mistake(key, &value, problem.to_string()))
    }

    /// The boolean value of a key; None if it is not given.
    pub(super) fn flag(&mut self, key: &'static str) -> Result<Option<bool>, Mistake> {
        let Some(value) = self.take(key) else { return Ok(None) };
        value.get_ref().as_bool().map(Some).ok_or_else(|| self.wrong(key, &value, "true or false, without quotes"))
    }

    /// The tables that begin with `[[key]]`.
    pub(super) fn sections(&mut self, key: &'static str) -> Result<Vec<Section<'a>>, Mistake> {
        let Some(value) = self.take(key) else { return Ok(Vec::new()) };
        let expected = format!("rules that begin with a line [[{key}]]");
        let tables = match value.get_ref() {
            DeValue::Array(tables) if tables.iter().all(|table| table.get_ref().is_table()) => tables.clone(),
            _ => return Err(self.wrong(key, &value, &expected)),
        };
        if tables.len() > MOST_RULES {
            let problem =
                format!("{} of them are more than {MOST_RULES}; a name such as web-* stands for many", tables.len());
            return Err(self.mistake(key, &value, problem));
        }
        let sections = tables.into_iter().filter_map(|table| {
            let begin = table.span().start;
            let DeValue::Table(entries) = table.into_inner() else { return None };
            Some(Section { text: self.text, begin, entries, known: Vec::new() })
        });
        Ok(sections.collect())
    }

    /// The table that begins with `[key]`; None if it is not there.
    pub(super) fn table(&mut self, key: &'static str) -> Result<Option<Section<'a>>, Mistake> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let begin = value.span().start;
        match value.get_ref() {
            DeValue::Table(entries) => {
                Ok(Some(Section { text: self.text, begin, entries: entries.clone(), known: Vec::new() }))
            }
            _ => Err(self.wrong(key, &value, &format!("keys below a line [{key}]"))),
        }
    }

    /// The strings of a list, each parsed by `read`; None if it is not given.
    pub(super) fn list<T, E: Display>(
        &mut self,
        key: &'static str,
        read: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<Vec<T>>, Mistake> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let expected = "texts in quotes between brackets, such as [\"/a\", \"/b\"]";
        let DeValue::Array(items) = value.get_ref() else { return Err(self.wrong(key, &value, expected)) };
        if items.len() > MOST_RULES {
            return Err(self.mistake(key, &value, format!("{} of them are more than {MOST_RULES}", items.len())));
        }
        let read_item = |item: &Spanned<DeValue<'_>>| match item.get_ref() {
            DeValue::String(text) if text.len() <= LONGEST_VALUE => {
                read(text).map_err(|problem| self.mistake(key, item, problem.to_string()))
            }
            _ => Err(self.wrong(key, item, expected)),
        };
        items.iter().map(read_item).collect::<Result<_, _>>().map(Some)
    }

    /// Fails if any key was not taken.
    pub(super) fn finish(self) -> Result<(), Mistake> {
        let Some(first) = self.entries.keys().min_by_key(|key| key.span().start) else { return Ok(()) };
        let key: String = first.get_ref().chars().take(SHOWN).collect();
        let alike = |known: &&&'static str| strsim::jaro_winkler(&key, known);
        let nearest = self.known.iter().max_by(|one, other| alike(one).total_cmp(&alike(other)));
        let advice = match nearest.filter(|known| alike(known) >= ALIKE) {
            Some(known) => format!("did you mean '{known}'?"),
            None => format!("known here are {}", self.known.join(", ")),
        };
        Err(Mistake::UnknownKey { line: line_at(self.text, first.span().start), key, advice })
    }

    fn take(&mut self, key: &'static str) -> Option<Spanned<DeValue<'a>>> {
        self.known.push(key);
        self.entries.remove(key)
    }

    fn wrong(&self, key: &'static str, value: &Spanned<DeValue<'_>>, expected: &str) -> Mistake {
        let given = self.text.get(value.span()).unwrap_or_default().lines().next().unwrap_or_default();
        let given: String = given.chars().take(SHOWN).collect();
        self.mistake(key, value, format!("'{given}' cannot stand here: write {expected}"))
    }

    fn mistake(&self, key: &'static str, value: &Spanned<DeValue<'_>>, problem: String) -> Mistake {
        Mistake::Value { key, line: line_at(self.text, value.span().start), problem }
    }
}

/// The line of an offset in the text.
fn line_at(text: &str, place: usize) -> usize {
    1 + text.bytes().take(place).filter(|byte| *byte == b'\n').count()
}
