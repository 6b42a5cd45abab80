//! Variants by their names, as serde spells them.
//!
//! Owns: finding a variant by its name. Never touches: the names, which each type derives and prints by its `Serialize`.

use serde::de::DeserializeOwned;
use serde::de::value::{Error, StrDeserializer};

/// The variant without fields that has this name, which its `Deserialize` says.
pub fn named<T: DeserializeOwned>(name: &str) -> Option<T> {
    T::deserialize(StrDeserializer::<Error>::new(name)).ok()
}
