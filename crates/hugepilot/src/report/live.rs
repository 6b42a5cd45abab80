//! The live view: mappings and a heat map, redrawn after each observation.
//!
//! Owns: what is shown, and what keys do to it. Never touches: the terminal; it draws into any frame it is given.

use std::collections::BTreeMap;

use heat::units::Address;
use heat::{Heat, Region, SeenMemory};
use pilot::words::{percent, rate};
use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Paragraph, Row, Table, TableState};

use super::heat_map::{Shade, cells_of};
use super::mapping_name;

/// The smallest terminal in which the view is readable.
const SMALLEST: (u16, u16) = (50, 10);
const NAME_LIMIT: usize = 40;

/// What a key requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Nothing; the view goes on.
    Nothing,
    /// To quit.
    Quit,
}

/// The order of mappings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Order {
    #[default]
    Walks,
    Present,
    Huge,
    Address,
}

/// The view.
#[derive(Debug, Default)]
pub struct Live {
    title: String,
    heat: Option<Heat>,
    message: Option<String>,
    order: Order,
    /// The start of the mapping under the cursor.
    selected: Option<Address>,
    /// Whether the map shows the selected mapping alone.
    zoomed: bool,
}

/// One line of the table.
#[derive(Debug, Default)]
struct Total {
    start: Address,
    name: String,
    amount: SeenMemory,
}

impl Live {
    /// A view that has nothing to show yet.
    pub fn new(title: String) -> Self {
        Self { title, ..Self::default() }
    }

    /// Shows another observation.
    pub fn show(&mut self, heat: Heat) {
        self.heat = Some(heat);
    }

    /// Shows a message in the last line, such as why there are no more observations.
    pub fn say(&mut self, message: String) {
        self.message = Some(message);
    }

    /// Handles a key.
    pub fn key(&mut self, code: KeyCode, modifiers: KeyModifiers) -> Asked {
        match code {
            KeyCode::Char('q') | KeyCode::Esc => return Asked::Quit,
            KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => return Asked::Quit,
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char('z') | KeyCode::Enter => self.zoomed = !self.zoomed,
            KeyCode::Up | KeyCode::Char('k') => self.move_cursor(-1),
            KeyCode::Down | KeyCode::Char('j') => self.move_cursor(1),
            _ => {}
        }
        Asked::Nothing
    }

    fn move_cursor(&mut self, by: isize) {
        let totals = self.totals();
        let at = self.cursor(&totals) as isize + by;
        self.selected = totals.get(at.clamp(0, totals.len().max(1) as isize - 1) as usize).map(|total| total.start);
    }

    fn cursor(&self, totals: &[Total]) -> usize {
        totals.iter().position(|total| Some(total.start) == self.selected).unwrap_or(0)
    }

    /// Draws everything.
    pub fn draw(&self, frame: &mut Frame<'_>) {
        let area = frame.area();
        if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
            let text = format!("terminal too small: {} x {} needed; q ends", SMALLEST.0, SMALLEST.1);
            frame.render_widget(Paragraph::new(text), area);
            return;
        }
        let totals = self.totals();
        let table_height = (totals.len() as u16 + 1).min(area.height / 2);
        let [head, table, _, map, shades, foot] = Layout::vertical([
            Constraint::Length(2),
            Constraint::Length(table_height),
            Constraint::Length(1),
            Constraint::Min(1),
            Constraint::Length(1),
            Constraint::Length(1),
        ])
        .areas(area);
        frame.render_widget(self.head(), head);
        self.draw_table(&totals, frame, table);
        frame.render_widget(self.map(&totals, map), map);
        frame.render_widget(key_of_shades(), shades);
        let keys = "q quit  s sort  up/down select  z zoom";
        frame.render_widget(Paragraph::new(self.message.as_deref().unwrap_or(keys)), foot);
    }

    fn head(&self) -> Paragraph<'_> {
        let Some(heat) = &self.heat else {
            return Paragraph::new(format!("{}: the first observation is under way", self.title));
        };
        let (present, walked, huge) = (heat.pages_present().bytes(), heat.pages_walked().bytes(), heat.huge_bytes());
        let coverage = percent(huge.0 as f64, present.0 as f64);
        Paragraph::new(format!(
            "{}: {} page walks; {present} present, {walked} walked\n{huge} on huge pages ({coverage}); by {}, bits mean {}",
            self.title,
            rate(heat.walks_per_second()),
            heat.tracker,
            pilot::words::name(heat.meaning)
        ))
    }

    fn draw_table(&self, totals: &[Total], frame: &mut Frame<'_>, area: Rect) {
        let rows = totals.iter().map(|total| {
            Row::new([
                rate(total.amount.walks_per_second),
                total.amount.present.bytes().to_string(),
                total.amount.walked.bytes().to_string(),
                total.amount.huge.to_string(),
                total.start.to_string(),
                total.name.clone(),
            ])
        });
        let widths = [11, 11, 11, 11, 16].map(Constraint::Length).into_iter().chain([Constraint::Min(10)]);
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let heading =
            |order: Order, name: &str| if self.order == order { format!("{name} v") } else { name.to_owned() };
        let head = Row::new([
            heading(Order::Walks, "walks"),
            heading(Order::Present, "present"),
            "walked".to_owned(),
            heading(Order::Huge, "huge"),
            heading(Order::Address, "start"),
            "mapping".to_owned(),
        ]);
        let table = Table::new(rows, widths).header(head.style(bold));
        let table = table.row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        let mut state = TableState::new().with_selected(Some(self.cursor(totals)));
        frame.render_stateful_widget(table, area, &mut state);
    }

    /// One cell per region, or several regions per cell where there are too many.
    fn map(&self, totals: &[Total], area: Rect) -> Paragraph<'_> {
        let Some(heat) = &self.heat else { return Paragraph::new("") };
        let shown = totals.get(self.cursor(totals)).filter(|_| self.zoomed).map(|total| total.start);
        let regions: Vec<&Region> =
            heat.regions.iter().filter(|region| shown.is_none_or(|start| start_of(heat, region) == start)).collect();
        let columns = usize::from(area.width).max(1);
        let cells = cells_of(&regions, columns * usize::from(area.height).max(1));
        let lines: Vec<Line<'_>> = cells
            .chunks(columns)
            .map(|row| Line::from(row.iter().map(|&shade| symbol(shade)).collect::<Vec<_>>()))
            .collect();
        Paragraph::new(Text::from(lines))
    }

    fn totals(&self) -> Vec<Total> {
        let Some(heat) = &self.heat else { return Vec::new() };
        let mut totals: BTreeMap<Address, Total> = BTreeMap::new();
        for region in &heat.regions {
            let start = start_of(heat, region);
            let total = totals.entry(start).or_insert_with(|| Total {
                start,
                name: mapping_name(heat.mapping_of(region), NAME_LIMIT),
                ..Total::default()
            });
            total.amount += region.amount();
        }
        let mut totals: Vec<Total> = totals.into_values().collect();
        match self.order {
            Order::Walks => {
                totals.sort_by(|left, right| right.amount.walks_per_second.total_cmp(&left.amount.walks_per_second))
            }
            Order::Present => totals.sort_by_key(|total| std::cmp::Reverse(total.amount.present)),
            Order::Huge => totals.sort_by_key(|total| std::cmp::Reverse(total.amount.huge)),
            Order::Address => {}
        }
        totals
    }
}

impl Order {
    fn next(self) -> Self {
        match self {
            Order::Walks => Order::Present,
            Order::Present => Order::Huge,
            Order::Huge => Order::Address,
            Order::Address => Order::Walks,
        }
    }
}

fn symbol(shade: Shade) -> Span<'static> {
    Span::styled(shade.symbol().to_string(), Style::new().fg(Color::Indexed(shade.color())))
}

fn key_of_shades() -> Paragraph<'static> {
    let walked = [Shade::Faint, Shade::Medium, Shade::Strong, Shade::Full];
    let mut spans = vec![symbol(Shade::NotWalked), Span::raw(" not walked  ")];
    spans.extend(walked.map(symbol));
    spans.extend([
        Span::raw(" walked, each four times the last  "),
        symbol(Shade::Huge),
        Span::raw(" huge  "),
        symbol(Shade::HugeWalked),
        Span::raw(" huge, walked"),
    ]);
    Paragraph::new(Line::from(spans))
}

/// The start of a region's mapping; the region's own start if the mapping is gone.
fn start_of(heat: &Heat, region: &Region) -> Address {
    heat.mapping_of(region).map_or(region.start, |mapping| mapping.range.start)
}

#[cfg(test)]
mod tests {
    use heat::samples::mixed_heat;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn drawn(live: &Live, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| live.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    fn live() -> Live {
        let mut live = Live::new("memcached (process 4242)".to_owned());
        live.show(mixed_heat());
        live
    }

    fn press(live: &mut Live, key: KeyCode) -> Asked {
        live.key(key, KeyModifiers::NONE)
    }

    #[test]
    fn it_shows_totals_mappings_and_the_map() {
        insta::assert_snapshot!(drawn(&live(), 100, 14));
    }

    #[test]
    fn keys_sort_select_zoom_and_quit() {
        let mut live = live();
        let first = |live: &Live| live.totals()[0].start;
        let hottest = first(&live);
        (0..3).for_each(|_| assert_eq!(press(&mut live, KeyCode::Char('s')), Asked::Nothing));
        assert!(live.totals().is_sorted_by_key(|total| total.start));
        press(&mut live, KeyCode::Char('s'));
        assert_eq!(first(&live), hottest);
        press(&mut live, KeyCode::Down);
        let second = live.totals()[1].start;
        assert_eq!(live.selected, Some(second));
        (0..9).for_each(|_| live.move_cursor(1));
        (0..9).for_each(|_| live.move_cursor(-1));
        assert_eq!(live.selected, Some(hottest));
        let whole = drawn(&live, 100, 14);
        press(&mut live, KeyCode::Enter);
        assert_ne!(drawn(&live, 100, 14), whole);
        assert_eq!(press(&mut live, KeyCode::Char('q')), Asked::Quit);
        assert_eq!(live.key(KeyCode::Char('c'), KeyModifiers::CONTROL), Asked::Quit);
        assert_eq!(press(&mut live, KeyCode::Char('c')), Asked::Nothing);
    }

    #[test]
    fn the_cursor_stays_on_its_mapping() {
        let mut live = live();
        press(&mut live, KeyCode::Down);
        let selected = live.selected;
        live.show(mixed_heat());
        press(&mut live, KeyCode::Char('s'));
        assert_eq!(live.selected, selected);
        let totals = live.totals();
        assert_eq!(Some(totals[live.cursor(&totals)].start), selected);
    }

    #[test]
    fn small_terminals_and_nothing_seen_are_told() {
        assert!(drawn(&live(), 30, 5).contains("terminal too small"));
        assert!(drawn(&Live::new("a".to_owned()), 80, 12).contains("the first observation is under way"));
        let mut ended = live();
        ended.say("the process has ended; q ends".to_owned());
        assert!(drawn(&ended, 80, 12).contains("the process has ended"));
    }
}
