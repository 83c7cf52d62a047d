//! A picture of the devices of a run as the subtrees they own, with those that departed marked.

use maud::{Markup, html};

/// Most devices that are drawn; wider trees cannot be read.
pub const DEVICES_DRAWN_MAX: u64 = 32;

/// What is known of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceState {
    /// It has returned a receipt and no verdict names it.
    Reported,
    /// A verdict names it.
    Departed,
    /// It has returned nothing.
    Silent,
}

impl DeviceState {
    fn class(self) -> &'static str {
        match self {
            DeviceState::Reported => "",
            DeviceState::Departed => "bad",
            DeviceState::Silent => "wait",
        }
    }

    fn word(self) -> &'static str {
        match self {
            DeviceState::Reported => "receipt returned",
            DeviceState::Departed => "departed from the prediction",
            DeviceState::Silent => "no receipt",
        }
    }
}

/// Draws the tree; nothing for no devices, or too many, or a number that is not a power of two.
pub fn device_tree(devices: &[DeviceState]) -> Markup {
    let count = devices.len();
    if !count.is_power_of_two() || count as u64 > DEVICES_DRAWN_MAX {
        return html! {};
    }
    let levels = count.ilog2() as usize;
    let (width, height) = (count * 40, levels * 48 + 56);
    // Level 0 is the devices, at the bottom; node `at` of a level stands above the middle of what it covers.
    let x = |level: usize, at: usize| (2 * at + 1) * (20 << level);
    let y = |level: usize| (levels - level) * 48 + 16;
    html! {
        svg viewBox={ "0 0 " (width) " " (height) } width=(width) height=(height) role="img"
            aria-label={ "Gradient tree over " (count) " devices" } {
            @for level in 0..levels {
                @for at in 0..count >> level {
                    line x1=(x(level, at)) y1=(y(level)) x2=(x(level + 1, at / 2)) y2=(y(level + 1)) {}
                }
            }
            @for level in 1..=levels {
                @for at in 0..count >> level {
                    circle cx=(x(level, at)) cy=(y(level)) r="5" {}
                }
            }
            @for (rank, state) in devices.iter().enumerate() {
                circle class=(state.class()) cx=(x(0, rank)) cy=(y(0)) r="9" {
                    title { "device " (rank) ": " (state.word()) }
                }
                text x=(x(0, rank)) y=(y(0) + 28) { (rank) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_devices_have_three_nodes_above_them() {
        let states =
            [DeviceState::Reported, DeviceState::Departed, DeviceState::Silent, DeviceState::Reported];
        let svg = device_tree(&states).into_string();
        assert_eq!(svg.matches("<circle").count(), 7);
        assert_eq!(svg.matches("<line").count(), 6);
        assert!(svg.contains("device 1: departed"));
    }

    #[test]
    fn what_cannot_be_drawn_is_left_out() {
        assert_eq!(device_tree(&[]).into_string(), "");
        assert_eq!(device_tree(&[DeviceState::Silent; 3]).into_string(), "");
        assert_eq!(device_tree(&[DeviceState::Silent; 64]).into_string(), "");
    }
}
