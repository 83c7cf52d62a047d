//! One operation: its forward in f64, and our gradients beside the slopes of that.

/// Half the distance at which a slope is measured. In f64 that leaves about ten digits of it.
const STEP: f64 = 1e-5;

/// From the inputs to the output, flat.
pub type Forward = Box<dyn Fn(&[Vec<f64>]) -> Vec<f64>>;

/// An operation, and what our backward kernels say of it.
pub struct Case {
    /// Their names in `step/src/reference`.
    pub kernels: &'static [&'static str],
    /// What the forward reads.
    pub inputs: Vec<Vec<f32>>,
    /// In f64.
    pub forward: Forward,
    /// The gradient of the loss with respect to the forward's output.
    pub d_out: Vec<f32>,
    /// Our gradients: of which input, and what.
    pub gradients: Vec<(usize, Vec<f32>)>,
}

impl Case {
    /// Largest error of a gradient of input `of`, as a fraction of the largest slope.
    pub fn error(&self, of: usize, gradient: &[f32]) -> f64 {
        let mut at: Vec<Vec<f64>> = self.inputs.iter().map(|x| wide(x)).collect();
        assert_eq!(gradient.len(), at[of].len(), "{:?}: length", self.kernels);
        let loss = |at: &[Vec<f64>]| -> f64 {
            let out = (self.forward)(at);
            assert_eq!(out.len(), self.d_out.len(), "{:?}: output", self.kernels);
            out.iter().zip(&self.d_out).map(|(y, d)| y * f64::from(*d)).sum()
        };
        let (mut difference, mut largest) = (0.0_f64, 0.0_f64);
        for (i, found) in gradient.iter().enumerate() {
            let x = at[of][i];
            at[of][i] = x + STEP;
            let above = loss(&at);
            at[of][i] = x - STEP;
            let below = loss(&at);
            at[of][i] = x;
            let slope = (above - below) / (2.0 * STEP);
            difference = difference.max((f64::from(*found) - slope).abs());
            largest = largest.max(slope.abs());
        }
        difference / largest
    }
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|x| f64::from(*x)).collect()
}
