//! eBPF programs, loaded, and their maps.
//!
//! Owns: finding a map, and emptying it. Never touches: what its entries mean.

use libbpf_rs::{MapCore, MapHandle, Object, ObjectBuilder, Result};

/// Loads a compiled program (`bpf/`), which the kernel lists under this name.
pub(super) fn load(name: &str, program: &[u8]) -> Result<Object> {
    ObjectBuilder::default().name(name)?.open_memory(program)?.load()
}

/// One of its maps, by its name in the source.
pub(super) fn map(object: &Object, name: &str) -> Result<MapHandle> {
    let map = object.maps().find(|map| map.name() == name).expect("the program defines the map");
    MapHandle::try_from(&map)
}

/// Removes every entry of a hash map.
pub(super) fn clear(map: &MapHandle) -> Result<()> {
    let keys: Vec<Vec<u8>> = map.keys().collect();
    keys.iter().try_for_each(|key| map.delete(key))
}
