"""Forecasting: ETT and Weather, LAVO Table 8."""
