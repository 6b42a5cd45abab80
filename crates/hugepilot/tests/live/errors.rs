crate::trials!();
