"""Plain value types shared by every floor: errors, sampling parameters, outputs, telemetry."""
