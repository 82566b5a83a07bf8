"""The error of f32 GEMMs with precision="highest", beside torch's."""
