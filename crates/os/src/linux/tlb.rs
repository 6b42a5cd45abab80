//! How many base-page translations the processor caches for data: the entries of its TLB.
//!
//! Owns: reading what the processor says about itself (CPUID). Never touches: system calls; nothing here can fail.
//!
//! A hypervisor may hide or invent these leaves, so impossible values count as unknown.
#![allow(unsafe_code)]

/// From fewer than any server processor has to more than any; values outside are not believed.
const BELIEVED: std::ops::RangeInclusive<u64> = 64..=16_384;

/// One result of CPUID: EAX, EBX, ECX, EDX.
type Leaf = [u32; 4];

/// Entries for base pages in all levels of one processor's data TLB together; None if the processor does not tell.
pub fn tlb_entries() -> Option<u64> {
    entries(cpuid)
}

#[cfg(target_arch = "x86_64")]
fn cpuid(leaf: u32, subleaf: u32) -> Leaf {
    // Newer compilers know that this is safe on x86-64, where every processor has the instruction.
    #[allow(unused_unsafe)]
    // SAFETY: the target is x86-64, so CPUID exists; it writes to the four registers only.
    let answer = unsafe { std::arch::x86_64::__cpuid_count(leaf, subleaf) };
    [answer.eax, answer.ebx, answer.ecx, answer.edx]
}

/// Other processors have no such instruction; all leaves are empty.
#[cfg(not(target_arch = "x86_64"))]
fn cpuid(_leaf: u32, _subleaf: u32) -> Leaf {
    [0; 4]
}

fn entries(cpuid: impl Fn(u32, u32) -> Leaf) -> Option<u64> {
    let told = deterministic(&cpuid) + extended(&cpuid);
    BELIEVED.contains(&told).then_some(told)
}

/// Leaf 0x18, "deterministic address translation parameters" (Intel, volume 2A of the manual): one subleaf for each part of the TLB.
fn deterministic(cpuid: &impl Fn(u32, u32) -> Leaf) -> u64 {
    const LEAF: u32 = 0x18;
    if cpuid(0, 0)[0] < LEAF {
        return 0;
    }
    let last = cpuid(LEAF, 0)[0].min(63);
    let holds_data = |[_, ebx, _, edx]: &Leaf| matches!(edx & 0x1f, 1 | 3 | 4) && ebx & 1 != 0;
    let size = |[_, ebx, ecx, _]: Leaf| u64::from(ebx >> 16) * u64::from(ecx);
    (0..=last).map(|part| cpuid(LEAF, part)).filter(holds_data).map(size).sum()
}

/// Leaves 0x80000005 and 0x80000006 (AMD, volume 3 of the manual): the first and the second level of the TLB for 4 KiB.
fn extended(cpuid: &impl Fn(u32, u32) -> Leaf) -> u64 {
    const FIRST: u32 = 0x8000_0005;
    const SECOND: u32 = 0x8000_0006;
    const LAST_POSSIBLE: u32 = 0x8000_ffff;
    // Since Zen 5 the second level is given in multiples of 32 if the bit L2TlbSizeX32 is set. Hypervisors hide the bit (seen under KVM),
    // but even the first 64-bit AMD processors had 512 entries there, so a smaller number is in multiples, too.
    const FEATURES: u32 = 0x8000_0021;
    const SIZE_X32: u32 = 1 << 14;
    const LEAST_SECOND: u64 = 512;
    if !(SECOND..=LAST_POSSIBLE).contains(&cpuid(0x8000_0000, 0)[0]) {
        return 0;
    }
    // Intel leaves both empty except for its caches, which are in other registers.
    let (first, second) = (cpuid(FIRST, 0)[1], cpuid(SECOND, 0)[1]);
    let second = u64::from(second >> 16 & 0xfff);
    let in_multiples =
        second < LEAST_SECOND || cpuid(0x8000_0000, 0)[0] >= FEATURES && cpuid(FEATURES, 0)[0] & SIZE_X32 != 0;
    u64::from(first >> 16 & 0xff) + second * if in_multiples { 32 } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_that_hold_data_of_base_pages_are_added_up() {
        // A Sapphire Rapids: 96 for loads, 16 for stores (not counted twice), 256 for instructions, 2,048 for all.
        let intel = |leaf, subleaf| match (leaf, subleaf) {
            (0, _) => [0x20, 0, 0, 0],
            (0x18, 0) => [8, 0, 0, 0],
            (0x18, 1) => [0, 8 << 16 | 1, 32, 1 << 5 | 2],
            (0x18, 2) => [0, 6 << 16 | 1, 16, 1 << 5 | 4],
            (0x18, 3) => [0, 16 << 16 | 15, 1, 1 << 5 | 5],
            (0x18, 4) => [0, 8 << 16 | 3, 256, 2 << 5 | 3],
            (0x18, 5) => [0, 8 << 16 | 8, 128, 2 << 5 | 3],
            (0x8000_0000, _) => [0x8000_0008, 0, 0, 0],
            _ => [0; 4],
        };
        assert_eq!(entries(intel), Some(96 + 2048));
        // A Zen 4: 72 and 3,072.
        let amd = |leaf, _| match leaf {
            0 => [0x10, 0, 0, 0],
            0x8000_0000 => [0x8000_0028, 0, 0, 0],
            0x8000_0005 => [0, 0xff48_ff40, 0, 0],
            0x8000_0006 => [0, 0x5c00_2200, 0, 0],
            _ => [0; 4],
        };
        assert_eq!(entries(amd), Some(72 + 0xc00));
        // A Zen 5: 96 and 4,096, with the bit that gives the unit, and as a hypervisor shows it.
        let zen_5 = |features: u32| {
            move |leaf, _| match leaf {
                0 => [0x10, 0, 0, 0],
                0x8000_0000 => [0x8000_0021, 0, 0, 0],
                0x8000_0005 => [0, 0xff60_ff40, 0, 0],
                0x8000_0006 => [0, 0x6080_4040, 0, 0],
                0x8000_0021 => [features, 0, 0, 0],
                _ => [0; 4],
            }
        };
        assert_eq!([0x204, 0x4204].map(|features| entries(zen_5(features))), [Some(96 + 4096); 2]);
    }

    #[test]
    fn what_is_hidden_is_unknown() {
        assert_eq!(entries(|_, _| [0; 4]), None);
        assert_eq!(entries(|_, _| [u32::MAX; 4]), None, "nonsense is not believed");
        assert!(tlb_entries().is_none_or(|entries| BELIEVED.contains(&entries)));
    }
}
