import{am as n,F as e}from"./base-K3XPS60X.js";const r=(t,s)=>t.endsWith("_bytes")?n(s):t.endsWith("_per_second")?`${e(s)}/s`:e(s);export{r as s};
