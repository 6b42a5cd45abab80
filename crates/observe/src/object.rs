//! eBPF programs, loaded, and their maps.
//!
//! Owns: finding a map. Never touches: what is in it.

use libbpf_rs::{MapCore, MapHandle, Object, ObjectBuilder, Result};

/// Loads a compiled program (`bpf/`), which the kernel shows by this name.
pub(super) fn load(name: &str, program: &[u8]) -> Result<Object> {
    ObjectBuilder::default().name(name)?.open_memory(program)?.load()
}

/// One of its maps, by the name that its source gives it.
pub(super) fn map(object: &Object, name: &str) -> Result<MapHandle> {
    let map = object.maps().find(|map| map.name() == name).expect("the program defines the map");
    MapHandle::try_from(&map)
}
