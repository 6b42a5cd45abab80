//! Whether this virtual machine reports free memory to its host, which reclaims it.
//!
//! Owns: the balloon devices in `/sys/bus/virtio`. Never touches: their settings, which are the host's.

use crate::{KernelError, Malformed, Root, optional};

const DRIVER: &str = "sys/bus/virtio/drivers/virtio_balloon";

/// `VIRTIO_BALLOON_F_REPORTING` (include/uapi/linux/virtio_balloon.h): blocks of free memory are reported, and the host takes their backing memory.
const REPORTING: usize = 5;

/// Whether free memory is reported; false where there is no such device.
///
/// Errors: the driver's directory cannot be listed, or a device's `features` are not a row of digits 0 and 1.
pub fn reports_free_memory(root: &Root) -> Result<bool, KernelError> {
    for device in optional(root.entries(DRIVER))?.unwrap_or_default() {
        // Besides its devices, the directory holds the driver's own files.
        let features = optional(root.parsed(&format!("{DRIVER}/{device}/features"), Root::LIMIT, parse))?;
        if features == Some(true) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// One digit per feature that device and driver agreed on, in order.
fn parse(text: &str) -> Result<bool, Malformed> {
    match text.as_bytes().get(REPORTING) {
        Some(b'0') => Ok(false),
        Some(b'1') => Ok(true),
        _ => Err(Malformed::new(1, "a digit 0 or 1 for each feature", text)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_device_that_reports_is_enough() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        assert!(!reports_free_memory(&root).unwrap(), "there is none");
        let driver = tree.path().join(DRIVER);
        for (device, features) in [("virtio0", "0110000"), ("virtio1", "0000010")] {
            fs::create_dir_all(driver.join(device)).unwrap();
            fs::write(driver.join("uevent"), "").unwrap();
            fs::write(driver.join(device).join("features"), features).unwrap();
            assert_eq!(reports_free_memory(&root).unwrap(), device == "virtio1");
        }
        fs::write(driver.join("virtio0/features"), "no").unwrap();
        assert!(reports_free_memory(&root).unwrap_err().to_string().contains("virtio0"));
    }

    proptest! {
        #[test]
        fn any_text_is_understood_or_refused(text in "[01]{0,8}|.{0,12}") {
            let _ = parse(&text);
        }
    }
}
