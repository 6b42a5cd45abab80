//! Where the kernel maps physical memory, to which page-table entries point.
//!
//! Owns: finding the direct map's base and proving it. Never touches: other processes; everything is tried on our own memory. A base is accepted only
//! if the page tables read through it name the same page frames as `/proc/self/pagemap` (Documentation/admin-guide/mm/pagemap.rst).

use heat::units::{Address, AddressRange, BASE_PAGE, Bytes, GIANT_PAGE, HUGE_PAGE};
use hugepilot_os::memory::{AlignedMemory, OwnAdvice};
use kernel::cpu::Cpu;
use kernel::{Root, iomem, kallsyms, pagemap};

use crate::page_walk::reader::{AttachedReader, PageTableReader};
use crate::page_walk::{Layout, ObserveError};

/// Where the direct map starts without KASLR (Documentation/arch/x86/x86_64/mm.rst), with 4 and 5 levels.
const FIXED_FOUR_LEVELS: u64 = 0xffff_8880_0000_0000;
const FIXED_FIVE_LEVELS: u64 = 0xff11_0000_0000_0000;
/// The 5-level direct map lies below this address, the 4-level one above it.
const LEVELS_BOUNDARY: u64 = 0xffff_8000_0000_0000;
/// KASLR moves the direct map in steps of 1 GiB.
const STEP: u64 = GIANT_PAGE;
/// At most 64 TiB of physical addresses are tried.
const MOST_CANDIDATES: u64 = 1 << 16;
/// Physical addresses allowed above the last RAM of `/proc/iomem`, for memory plugged in later.
const SLACK: u64 = 4 * GIANT_PAGE;

/// Finds the layout and proves it.
pub(super) fn find(reader: &mut PageTableReader, root: &Root) -> Result<Layout, ObserveError> {
    let evidence = Evidence::make()?;
    let own = std::process::id();
    let mut own_reader = reader.attach(own, own)?;
    let top = own_reader.top_level_table()?;
    let levels = if top < LEVELS_BOUNDARY { 5 } else { 4 };
    let frame_mask = frame_mask(Cpu::read(root)?.physical_bits);
    let told = match kallsyms::address_of(root, "page_offset_base") {
        Some(address) => Some(own_reader.peek(address)?).filter(|&base| base != 0),
        None => None,
    };
    for direct_map in told.into_iter().chain(candidates(root, top, levels)) {
        let layout = Layout { direct_map, frame_mask, levels };
        own_reader.set_layout(layout);
        if evidence.proves(&mut own_reader, layout)? {
            tracing::debug!(?layout, "direct map found");
            return Ok(layout);
        }
    }
    Err(ObserveError::NoDirectMap)
}

/// The bits of an entry that hold a physical address: as many as the processor has, which excludes an encryption bit above (AMD SME).
fn frame_mask(physical_bits: u32) -> u64 {
    ((1u64 << physical_bits.clamp(32, 52)) - 1) & !(BASE_PAGE - 1)
}

/// Bases worth trying when the kernel does not reveal its own: the one without KASLR, then every step downwards from the top-level table, which is
/// itself in the direct map.
fn candidates(root: &Root, top: u64, levels: u32) -> impl Iterator<Item = u64> {
    let fixed = if levels == 5 { FIXED_FIVE_LEVELS } else { FIXED_FOUR_LEVELS };
    let highest = iomem::end_of_memory(root).ok().flatten().map_or(u64::MAX, |end| end.saturating_add(SLACK));
    let steps = (highest / STEP + 1).min(MOST_CANDIDATES);
    let below_top = (0..steps).map(move |step| (top & !(STEP - 1)).saturating_sub(step * STEP));
    std::iter::once(fixed).chain(below_top.take_while(move |&base| base >= fixed))
}

/// Our own memory, with the page frames that pagemap names.
struct Evidence {
    mapping: AlignedMemory,
    frames: Vec<u64>,
}

impl Evidence {
    const PAGES: usize = 64;

    fn make() -> Result<Self, ObserveError> {
        let error = |cause| ObserveError::Pagemap { cause };
        let mut mapping = AlignedMemory::anonymous(HUGE_PAGE as usize).map_err(error)?;
        mapping.advise(0, HUGE_PAGE as usize, OwnAdvice::NoHugePage).map_err(error)?;
        for page in 0..Self::PAGES {
            mapping.bytes_mut()[page * BASE_PAGE as usize] = 1;
        }
        let frames = pagemap::own_frames(Address(mapping.address()), Self::PAGES)?;
        // Without CAP_SYS_ADMIN every page frame number reads as 0.
        if frames.contains(&0) { Err(ObserveError::HiddenFrames) } else { Ok(Self { mapping, frames }) }
    }

    /// Whether the page tables, read with this layout, name the same page frames as pagemap.
    fn proves(&self, own: &mut AttachedReader<'_>, layout: Layout) -> Result<bool, ObserveError> {
        let range = AddressRange::new(Address(self.mapping.address()), Bytes(HUGE_PAGE));
        let mut found = Vec::new();
        own.read(range, |table| found.extend(table.pages.accessible(layout).map(|entry| (entry.page, entry.frame))))?;
        Ok(found.into_iter().eq(self.frames.iter().copied().enumerate()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_descend_in_steps_from_the_top_level_table() {
        let base = FIXED_FOUR_LEVELS + 37 * STEP;
        let nowhere = Root::at("/nonexistent");
        let found: Vec<u64> = candidates(&nowhere, base + 5 * STEP + 0x1234_5000, 4).collect();
        assert_eq!(found[0], FIXED_FOUR_LEVELS);
        assert!(found.contains(&base));
        assert!(found.iter().all(|base| base % STEP == 0 && *base >= FIXED_FOUR_LEVELS));
    }

    #[test]
    fn frame_mask_leaves_flags_and_encryption_bits_out() {
        assert_eq!(frame_mask(46), 0x3fff_ffff_f000);
        assert_eq!(frame_mask(52), 0xf_ffff_ffff_f000);
        assert_eq!(frame_mask(99), frame_mask(52));
    }
}
