//! What the model leaves out and the paper's processors or kernels may have had, each to be tried alone: does it explain the paper?
//!
//! Owns: the list of candidates, what each assumes, and where that is from. Never touches: how a model runs, or what became of it.
//!
//! "The manual" is Intel's IA-32 Architecture Optimization Reference Manual, order number 248966, section 1, of the Pentium 4. What has no
//! source is an assumption.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::cache::{Geometry, Replacement};
use super::free_list::{FreeList, Turns};
use super::model::{Datasheet, PAGE_BYTES, Processor};
use super::simulation::Model;

/// One thing, or two together, that the model assumes besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Assumption {
    /// Nothing: the model as it is
    Plain,
    /// Lines are replaced as a tree of bits says ("all caches use a pseudo-LRU", the manual)
    TreePlru,
    /// Any line leaves
    AnyLine,
    /// The line leaves that came first
    FirstIn,
    /// The first line leaves that was not used since all others were
    NotRecentlyUsed,
    /// Only every second page is free, from anywhere
    EverySecond,
    /// Only every fourth page is free, from anywhere
    EveryFourth,
    /// Only every eighth page is free, from anywhere
    EveryEighth,
    /// Every fourth page by address: four programs take pages by turns, or three others took theirs and still have them
    InTurns,
    /// Two programs take four pages each by turns (so Linux 2.6 refilled a processor's list where a zone had 64 MiB; a patch of April
    /// 2005 made batches odd, because a task "can end up with a lot of pages of one half of the possible page colors")
    InBatches,
    /// Contiguous blocks of 8 pages, from anywhere: what was freed and coalesced
    Blocks,
    /// By address, each page as likely free as not: what a program left
    Gaps,
    /// Ten pages as in-turns, which a program left last, and then each page anywhere
    LeftBehind,
    /// Pages of both matrices are taken by turns, not those of one after those of the other
    BothByTurns,
    /// Writing a line back costs as much as reading one, because the bus turns around, and both together as much as before
    Turnaround,
    /// Pentium 4: the first level writes through (the manual)
    WriteThrough,
    /// A read that misses brings the line beside it ("fetches a sector, consisting of two adjacent cache lines", the manual; the Celeron does
    /// not): what a prefetcher could do at best in so short a row
    Pairs,
    /// 64 translations, of four ways in the Celeron, of 64 in the Pentium 4; a walk is assumed to take 30 cycles
    Tlb,
    /// Pentium 4: a line from the second level takes 7 cycles, from memory 12 and 9 of the bus ("6-12 bus cycles", the manual)
    Manual,
    /// Pentium 4: the same with 12 cycles of the bus
    ManualSlowest,
    /// Between two transposes the program reads two other pages of its own
    Others,
    /// every-fourth and manual
    #[value(name = "every-fourth+manual")]
    #[serde(rename = "every-fourth+manual")]
    EveryFourthManual,
    /// left-behind and others
    #[value(name = "left-behind+others")]
    #[serde(rename = "left-behind+others")]
    LeftBehindOthers,
}

/// Four programs, until all pages are taken.
const IN_TURNS: Turns = Turns { pages: 1024, programs: 4, batch: 1 };

impl fmt::Display for Assumption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.to_possible_value().expect("none is skipped").get_name())
    }
}

impl Assumption {
    /// The model with what is assumed.
    pub fn model(self, processor: Processor) -> Model {
        let mut model = Model::from(processor);
        self.assume(processor, &mut model);
        model
    }

    fn assume(self, processor: Processor, model: &mut Model) {
        let Model { datasheet, free, both_by_turns } = model;
        let besides = &mut datasheet.besides;
        match self {
            Assumption::Plain => {}
            Assumption::TreePlru => besides.replacement = Replacement::Tree,
            Assumption::AnyLine => besides.replacement = Replacement::Random,
            Assumption::FirstIn => besides.replacement = Replacement::FirstIn,
            Assumption::NotRecentlyUsed => besides.replacement = Replacement::NotRecentlyUsed,
            Assumption::EverySecond => *free = FreeList::OneOf(2),
            Assumption::EveryFourth => *free = FreeList::OneOf(4),
            Assumption::EveryEighth => *free = FreeList::OneOf(8),
            Assumption::InTurns => *free = FreeList::Runs(IN_TURNS),
            Assumption::InBatches => *free = FreeList::Runs(Turns { programs: 2, batch: 4, ..IN_TURNS }),
            Assumption::Blocks => *free = FreeList::Runs(Turns { pages: 8, programs: 1, batch: 1 }),
            Assumption::Gaps => *free = FreeList::Gaps,
            Assumption::LeftBehind => *free = FreeList::RunFirst(Turns { pages: 10, ..IN_TURNS }),
            Assumption::BothByTurns => *both_by_turns = true,
            Assumption::Turnaround => turn_around(datasheet),
            Assumption::WriteThrough => besides.writes_through = processor == Processor::Pentium4,
            Assumption::Pairs => besides.pairs = true,
            Assumption::Tlb => translate(processor, datasheet),
            Assumption::Manual => price_by_manual(processor, datasheet, 9.0),
            Assumption::ManualSlowest => price_by_manual(processor, datasheet, 12.0),
            Assumption::Others => besides.others = 2,
            Assumption::EveryFourthManual => {
                Assumption::EveryFourth.assume(processor, model);
                Assumption::Manual.assume(processor, model);
            }
            Assumption::LeftBehindOthers => {
                Assumption::LeftBehind.assume(processor, model);
                Assumption::Others.assume(processor, model);
            }
        }
    }
}

/// Far beyond the cache half of all lines that come are written back, so that the plateau stays where it is.
fn turn_around(datasheet: &mut Datasheet) {
    let prices = &mut datasheet.prices;
    let line = (2.0 * prices.memory + prices.write_back) / 3.0;
    (prices.memory, prices.write_back) = (line, line);
}

fn translate(processor: Processor, datasheet: &mut Datasheet) {
    let ways = match processor {
        Processor::Celeron => 4,
        Processor::Pentium4 => 64,
    };
    datasheet.besides.translations = Some(Geometry { size_bytes: 64 * PAGE_BYTES, ways, line_bytes: PAGE_BYTES });
    datasheet.prices.walk = 30.0;
}

fn price_by_manual(processor: Processor, datasheet: &mut Datasheet, bus_cycles: f64) {
    /// The bus has 100 MHz.
    const CYCLES_OF_THE_BUS: f64 = 16.0;
    if processor == Processor::Pentium4 {
        datasheet.prices.second = 7.0;
        datasheet.prices.memory = 12.0 + bus_cycles * CYCLES_OF_THE_BUS;
    }
}

#[cfg(test)]
mod tests {
    use super::super::placement::Placement;
    use super::super::simulation::{gain, simulate};
    use super::*;

    fn gains(processor: Processor, candidate: Assumption, dimensions: &[u64]) -> Vec<f64> {
        let placements = [Placement::Random, Placement::Colored];
        let points = simulate(candidate.model(processor), &placements, dimensions, 3, 1);
        points.iter().map(|point| gain(point).unwrap()).collect()
    }

    #[test]
    fn every_candidate_assumes_something_and_none_is_the_plain_model() {
        let models = |candidate: Assumption| {
            Processor::value_variants().iter().map(|&processor| format!("{:?}", candidate.model(processor))).collect()
        };
        let all: Vec<String> = Assumption::value_variants().iter().map(|&candidate| models(candidate)).collect();
        let plain: String =
            Processor::value_variants().iter().map(|&processor| format!("{:?}", Model::from(processor))).collect();
        assert_eq!(all[0], plain);
        assert!(all.iter().enumerate().all(|(place, model)| !all[..place].contains(model)), "two are the same");
    }

    #[test]
    fn two_of_eight_colors_are_full_at_forty_five_and_overflow_at_forty_seven() {
        let gains = gains(Processor::Celeron, Assumption::InTurns, &[45, 47, 49]);
        assert!(gains[0] < 1.01 && gains[1] > 1.5 && gains[2] > 3.0, "{gains:?}");
    }

    #[test]
    fn six_times_takes_few_colors_and_prices_of_the_manual() {
        let gain = |candidate| gains(Processor::Pentium4, candidate, &[113])[0];
        assert!(gain(Assumption::EveryFourthManual) > 6.0);
        assert!(gain(Assumption::EveryFourth) < 5.0 && gain(Assumption::Manual) < 2.0);
    }

    #[test]
    fn a_bus_that_turns_around_costs_as_much_in_all() {
        let mut datasheet = Processor::Celeron.datasheet();
        let cost = |datasheet: &Datasheet| 2.0 * datasheet.prices.memory + datasheet.prices.write_back;
        let before = cost(&datasheet);
        turn_around(&mut datasheet);
        assert!(datasheet.prices.memory == datasheet.prices.write_back && (cost(&datasheet) - before).abs() < 1e-9);
    }
}
